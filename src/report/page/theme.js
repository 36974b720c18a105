"use strict";
// Colours. Scales are drawn in OKLCH with lightness linear in the value, so that equal steps look equal; they start at
// the page's own background and get stronger, in light and in dark.

function isDark() {
  const forced = document.documentElement.dataset.theme;
  return forced ? forced === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// OKLCH (lightness 0 to 1, chroma, hue in degrees) as an sRGB colour; the matrices are those of the OKLab definition.
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180);
  const b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
  ];
  const channel = (x) => {
    const y = x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, y)));
  };
  return `rgb(${linear.map(channel).join(",")})`;
}

function scale(color, steps = 16) {
  return Array.from({length: steps + 1}, (_, i) => [i / steps, color(i / steps)]);
}

// Everything that the pictures need to know about colours now.
function theme() {
  const dark = isDark();
  const ground = dark ? 0.235 : 0.975;
  const far = dark ? 0.93 : 0.27;
  const level = (t) => ground + (far - ground) * t;
  const bow = (t) => 0.125 * Math.sin(Math.PI * (0.02 + 0.83 * t));
  const arm = (t, hue) => oklch(ground + (far - ground) * 0.78 * t, 0.15 * Math.sqrt(t), hue);
  return {
    dark,
    ink: dark ? "#e4e6e9" : "#20242b",
    soft: dark ? "#a0a7b1" : "#5b626d",
    line: dark ? "#2c3239" : "#e3e1dc",
    card: dark ? "#1a1e23" : "#ffffff",
    series: dark ? ["#74bdec", "#f2a65a", "#9aa3ad", "#8fd3a6"] : ["#0b5c8a", "#c2560c", "#7a828c", "#2b7a4b"],
    negative: dark ? "#ff8f6b" : "#b5311b",
    sequential: scale((t) => oklch(level(t), bow(t), dark ? 265 - 165 * t : 190 + 90 * t)),
    diverging: scale((t) => (t < 0.5 ? arm(1 - 2 * t, 45) : arm(2 * t - 1, 250))),
  };
}

// Colour with an alpha from 0 to 1.
function faded(hex, alpha) {
  const byte = (i) => parseInt(hex.slice(i, i + 2), 16);
  return `rgba(${byte(1)},${byte(3)},${byte(5)},${alpha})`;
}

// The button goes round automatic, light, dark; ?theme=dark in the address does the same.
function setUpTheme(redraw) {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const names = {"": "automatic", light: "light", dark: "dark"};
  const apply = (name) => {
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    button.textContent = `Colours: ${names[name]}`;
  };
  const asked = new URLSearchParams(location.search).get("theme");
  apply(asked === "light" || asked === "dark" ? asked : "");
  button.addEventListener("click", () => {
    const order = Object.keys(names);
    apply(order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length]);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
