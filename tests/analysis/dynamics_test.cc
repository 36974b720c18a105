// Dynamics of planted runs: what was put into the lines is what comes out.
#include "analysis/dynamics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "unchain/error.h"

namespace unchain::analysis {
namespace {

using nlohmann::json;

template <class Line>
std::string metrics(int64_t steps, const Line& line) {
  std::string text;
  for (int64_t step = 1; step <= steps; ++step) {
    json object = line(step);
    object["step"] = step;
    text += object.dump() + "\n";
  }
  return text;
}

template <class Loss>
TrainingDynamics of_losses(int64_t steps, const Loss& loss) {
  return training_dynamics(metrics(steps, [&](int64_t step) { return json{{"loss_nats", loss(step)}}; }), "run");
}

TEST(Dynamics, CurvesAreMeansOfNeighbours) {
  const TrainingDynamics run =
      training_dynamics(metrics(1000,
                                [](int64_t step) {
                                  const double x = static_cast<double>(step);
                                  json line = {{"loss_nats", 8 - x / 1024},
                                               {"gradient_norm", x},
                                               {"gradient_norms", {{"norm", 2 * x}, {"lambda", 0}}},
                                               {"lambda", {x / 2, nullptr}},
                                               {"tokens_per_s", "not read"}};
                                  if (step % 10 == 1) line["update_ratios"] = {{"norm", x / 8}};
                                  return line;
                                }),
                        "run");
  EXPECT_EQ(run.first_step, 1);
  EXPECT_EQ(run.last_step, 1000);
  ASSERT_EQ(run.loss_nats.steps.size(), 200u);
  ASSERT_EQ(run.loss_nats.values.size(), 200u);
  ASSERT_EQ(run.lambda.size(), 2u);
  for (size_t i = 0; i < 200; ++i) {
    const double middle = 5 * static_cast<double>(i) + 3;  // of steps 5i + 1 … 5i + 5
    EXPECT_DOUBLE_EQ(run.loss_nats.steps[i], middle);
    EXPECT_DOUBLE_EQ(run.loss_nats.values[i], 8 - middle / 1024);
    EXPECT_DOUBLE_EQ(run.gradient_norm.values[i], middle);
    EXPECT_DOUBLE_EQ(run.gradient_norms.at("norm").values[i], 2 * middle);
    EXPECT_DOUBLE_EQ(run.gradient_norms.at("lambda").values[i], 0);
    EXPECT_DOUBLE_EQ(run.lambda[0].values[i], middle / 2);
  }
  EXPECT_TRUE(run.lambda[1].steps.empty());
  EXPECT_EQ(run.gradient_norms.size(), 2u);
  const Curve& ratios = run.update_ratios.at("norm");  // 100 lines have one: each is a point
  ASSERT_EQ(ratios.steps.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(ratios.steps[i], 10 * static_cast<double>(i) + 1);
    EXPECT_EQ(ratios.values[i], ratios.steps[i] / 8);
  }
}

TEST(Dynamics, NoMorePointsThanAllowed) {
  for (const auto& [steps, points] :
       {std::pair<int64_t, size_t>{1, 1}, {7, 7}, {200, 200}, {201, 101}, {401, 134}, {10001, 197}}) {
    const TrainingDynamics run = of_losses(steps, [](int64_t step) { return static_cast<double>(step); });
    EXPECT_EQ(run.loss_nats.steps.size(), points) << steps;
    EXPECT_LE(points, kCurvePoints);
    EXPECT_LE(run.loss_nats.steps.back(), static_cast<double>(steps));
    EXPECT_TRUE(run.gradient_norm.steps.empty());
    EXPECT_TRUE(run.lambda.empty());
    EXPECT_TRUE(run.update_ratios.empty());
  }
}

// ±0.1 about 3: deviation 0.1. Leaps of 6.5 and 5.5 deviations, one beyond the first steps' silence, and a fall.
TEST(Dynamics, PlantedSpikes) {
  const auto quiet = [](int64_t step) { return step % 2 == 0 ? 3.1 : 2.9; };
  EXPECT_EQ(of_losses(500, quiet).loss_spikes, 0);
  const auto with = [&](int64_t where, double value) {
    return of_losses(500, [&](int64_t step) { return step == where ? value : quiet(step); }).loss_spikes;
  };
  EXPECT_EQ(with(300, 3 + 0.65), 1);
  EXPECT_EQ(with(300, 3 + 0.55), 0);
  EXPECT_EQ(with(15, 9), 0);  // too early to tell
  EXPECT_EQ(with(30, 9), 1);
  EXPECT_EQ(with(300, -9), 0);
  // Two far enough apart that the first has left the window; a second one near by hides behind the spread of the first.
  const auto two = [&](int64_t second) {
    return of_losses(500, [&](int64_t step) { return step == 150 || step == second ? 4.0 : quiet(step); }).loss_spikes;
  };
  EXPECT_EQ(two(400), 2);
  EXPECT_EQ(two(160), 2);  // one leap of 10 widens the deviation of 100 steps from 0.1 to 0.14: still 7
}

// Straight lines have no error; the slope is that of a tenth of the run.
TEST(Dynamics, PlantedSlopes) {
  for (const auto& [fall, flat] :
       {std::pair{0.0, true}, {0.0019, true}, {0.0021, false}, {0.5, false}, {-0.0021, false}}) {
    const double each = fall / 20;  // nats a step, of 200
    const TrainingDynamics run = of_losses(200, [&](int64_t step) { return 3 - each * static_cast<double>(step); });
    ASSERT_TRUE(run.ending);
    EXPECT_NEAR(run.ending->slope_nats, -fall, 1e-12);
    EXPECT_NEAR(run.ending->error_nats, 0, 1e-12);
    EXPECT_EQ(run.ending->is_flat, flat) << fall;
  }
  // What happened before the last tenth does not count: a steep fall that ends at step 900.
  const auto settled =
      of_losses(1000, [](int64_t step) { return step <= 900 ? 10 - 0.01 * static_cast<double>(step) : 1; });
  EXPECT_TRUE(settled.ending->is_flat);
  EXPECT_NEAR(settled.ending->slope_nats, 0, 1e-12);
  const auto one_more =
      of_losses(1000, [](int64_t step) { return step <= 901 ? 10 - 0.01 * static_cast<double>(step) : 1; });
  EXPECT_GT(std::abs(one_more.ending->slope_nats), 1e-6);
}

// The textbook's other form of the same line: slope = (Σxy − n x̄ȳ)/(Σx² − n x̄²), error² = (Σy² − n ȳ² − slope·(Σxy −
// n x̄ȳ))/((n − 2)(Σx² − n x̄²)). In sums of 1e2 values near 1e2 it loses 1e-10.
TEST(Dynamics, StandardErrorOfTheSlope) {
  Rng rng(3);
  std::vector<double> losses;
  losses.reserve(1200);
  for (int i = 0; i < 1200; ++i) losses.push_back(2 - 1e-4 * i + 0.05 * rng.normal());
  const TrainingDynamics run = of_losses(1200, [&](int64_t step) { return losses[static_cast<size_t>(step - 1)]; });
  double n = 120, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  for (int i = 1; i <= 120; ++i) {
    const double loss = losses[static_cast<size_t>(1080 + i - 1)];
    x += i;
    y += loss;
    xx += i * i;
    xy += i * loss;
    yy += loss * loss;
  }
  const double sxx = xx - x * x / n, sxy = xy - x * y / n, slope = sxy / sxx;
  EXPECT_NEAR(run.ending->slope_nats, slope * 120, 1e-8);
  EXPECT_NEAR(run.ending->error_nats, 120 * std::sqrt((yy - y * y / n - slope * sxy) / (n - 2) / sxx), 1e-8);
}

// Of flat runs with noise |slope| < 2 errors in P(|t| < 2) = 95.2 %, t of 98 degrees: 381 of 400, SD 4.3. A fall of
// five errors is seen in all but P(t < −3) = 0.2 %. σ = 0.05: the error is 0.05·√12/√100 = 0.017 nats.
TEST(Dynamics, FlatAndFallingUnderNoise) {
  int flat = 0, seen = 0;
  for (uint64_t trial = 0; trial < 400; ++trial) {
    const auto run = [&](double fall) {
      Rng rng(5, trial);
      return of_losses(1000,
                       [&](int64_t step) { return 2 - fall / 100 * static_cast<double>(step) + 0.05 * rng.normal(); })
          .ending;
    };
    flat += run(0)->is_flat;
    seen += !run(5 * 0.0173)->is_flat;
  }
  EXPECT_NEAR(flat, 381, 4 * 4.3);
  EXPECT_GE(seen, 394);
}

TEST(Dynamics, ShortRunsHaveNoEnding) {
  const auto one = [](int64_t) { return 1.0; };
  EXPECT_FALSE(of_losses(90, one).ending);  // of steps 82 … 90
  EXPECT_TRUE(of_losses(91, one).ending);   // of steps 82 … 91, behind 81.9
  EXPECT_FALSE(of_losses(1, one).ending);
}

TEST(Dynamics, BrokenLinesAreNamed) {
  const std::string good = R"({"step": 1, "loss_nats": 5, "lambda": [0.5]})"
                           "\n"
                           R"({"step": 2, "loss_nats": 4})"
                           "\n";
  const auto message = [&](const std::string& third) -> std::string {
    try {
      training_dynamics(good + third, "runs/a/metrics.jsonl");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::format);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(""), "no error");
  EXPECT_EQ(message(R"({"step": 3, "loss_nats": 4, "lambda": null, "gradient_norm": null, "gradient_norms": null})"),
            "no error");  // the last newline may be missing
  for (const auto& [line, said] : std::vector<std::pair<std::string, std::string>>{
           {R"({"step": 3, "loss)", "not valid JSON"},
           {"", "no error"},
           {"\n", "not valid JSON"},
           {"[1]", "no JSON object"},
           {R"({"loss_nats": 4})", "step is missing"},
           {R"({"step": 3})", "loss_nats is missing"},
           {R"({"step": 3, "loss_nats": null})", "loss_nats is missing"},
           {R"({"step": 3, "loss_nats": "4"})", "loss_nats is string"},
           {R"({"step": 2, "loss_nats": 4})", "step 2 comes after step 2"},
           {R"({"step": -3, "loss_nats": 4})", "step is -3"},
           {R"({"step": 1e300, "loss_nats": 4})", "step is 1e+300"},
           {R"({"step": 3, "loss_nats": 4, "lambda": [1, 2]})", "lambda has 2 layers, but 1 before"},
           {R"({"step": 3, "loss_nats": 4, "lambda": ["x"]})", "lambda[0] is string"},
           {R"({"step": 3, "loss_nats": 4, "lambda": 1})", "lambda is number"},
           {R"({"step": 3, "loss_nats": 4, "gradient_norms": [1]})", "gradient_norms is array"},
           {R"({"step": 3, "loss_nats": 4, "gradient_norms": {"norm": true}})", "gradient_norms.norm is boolean"},
           {R"({"step": 3, "loss_nats": 4, "gradient_norm": {}})", "gradient_norm is object"}}) {
    const std::string found = message(line);
    EXPECT_NE(found.find(said), std::string::npos) << found;
    EXPECT_EQ(found.find("runs/a/metrics.jsonl: line 3"), line.empty() ? std::string::npos : 0) << found;
  }
  EXPECT_THROW(training_dynamics("", "empty"), Error);
}

}  // namespace
}  // namespace unchain::analysis
