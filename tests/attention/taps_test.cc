// What observers see and what editors may change.
#include <gtest/gtest.h>

#include <stdexcept>

#include "attention/attention.h"
#include "base/thread.h"
#include "support/attention_case.h"
#include "support/compare.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using attention::MapPanel;
using attention::OutputPanel;
using attention::Taps;

// Keeps whole maps and outputs, and checks the order of events.
struct Recorder : attention::Observer {
  explicit Recorder(const ref::AttentionSizes& sizes_of_all) : s(sizes_of_all) {
    maps.assign(static_cast<size_t>(s.heads * s.rows * s.keys()), -1);
    outputs.assign(static_cast<size_t>(s.rows * s.heads * s.value_dim), -77);
    seen.assign(static_cast<size_t>(s.rows), 0);
  }
  bool wants(int layer) const override { return layer == wanted; }
  void on_maps(const MapPanel& panel) override {
    EXPECT_EQ(ended, 0);
    EXPECT_EQ(panel.layer, wanted);
    EXPECT_EQ(panel.heads, s.heads);
    EXPECT_EQ(panel.kv_heads, s.kv_heads);
    EXPECT_EQ(panel.window, s.window);
    EXPECT_EQ(panel.first_row, s.first_row + rows_of_maps) << "panels come in order";
    EXPECT_EQ(panel.keys, panel.first_row + panel.rows);
    EXPECT_GE(panel.row_stride, panel.keys);
    EXPECT_EQ(panel.noise, nullptr);
    EXPECT_EQ(panel.lambda, nullptr);
    for (int64_t r = 0; r < panel.rows; ++r) {
      const int64_t t = panel.first_row - s.first_row + r;
      ++seen[static_cast<size_t>(t)];
      for (int h = 0; h < panel.heads; ++h) {
        for (int64_t j = 0; j < s.keys(); ++j) {
          maps[s.map_at(h, t, j)] = j < panel.keys ? panel.positive_row(h, r)[j] : 0.0f;
        }
      }
      for (int64_t j = 0; j < s.keys(); ++j) {
        EXPECT_EQ(s.sees(t, j), j >= panel.first_key(r) && j <= panel.first_row + r);
      }
    }
    rows_of_maps += panel.rows;
  }
  void on_outputs(const OutputPanel& panel) override {
    EXPECT_EQ(ended, 0);
    EXPECT_EQ(panel.first_row, s.first_row + rows_of_outputs);
    EXPECT_EQ(panel.value_width, s.value_dim);
    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int64_t i = 0; i < s.heads * s.value_dim; ++i) {
        outputs[static_cast<size_t>((rows_of_outputs + r) * s.heads * s.value_dim + i)] =
            panel.output[r * panel.row_stride + i];
      }
    }
    rows_of_outputs += panel.rows;
  }
  void end_layer(int layer) override {
    EXPECT_EQ(layer, wanted);
    ++ended;
  }

  ref::AttentionSizes s;
  int wanted = 5, ended = 0;
  int64_t rows_of_maps = 0, rows_of_outputs = 0;
  std::vector<float> maps, outputs;
  std::vector<int> seen;
};

TEST(Taps, ObserversSeeEachRowOnceAndAllOfIt) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t rows : {1, 4, 127, 128, 129, 200}) {  // a panel has 128
      for (const int64_t first_row : {0, 33}) {
        for (const int64_t window : {0, 1, 3, 40}) {
          for (const DType type : {DType::f32, DType::bf16}) {
            const auto s = grouped_attention(rows, first_row, window);
            SCOPED_TRACE(testing::Message()
                         << rows << " at " << first_row << ", window " << window << ", " << info(type).name);
            AttentionCase c(s, type);
            Recorder recorder(s);
            const Taps taps{{&recorder}, {}};
            const auto out = c.run(DType::f32, {&taps, 5});
            EXPECT_EQ(recorder.ended, 1);
            EXPECT_EQ(recorder.seen, std::vector<int>(static_cast<size_t>(rows), 1));
            EXPECT_EQ(recorder.rows_of_outputs, rows);
            EXPECT_TRUE(same_bits(recorder.outputs, out));
            const auto expected = c.reference(type == DType::bf16);
            std::vector<double> tolerance;
            c.tolerance(expected, DType::f32, &tolerance);
            EXPECT_TRUE(close_each(recorder.maps, expected.maps, tolerance)) << "masked entries have no tolerance";
            for (int64_t h = 0; h < s.heads; ++h) {
              for (int64_t t = 0; t < rows; ++t) {
                double sum = 0;
                for (int64_t j = 0; j < s.keys(); ++j) sum += static_cast<double>(recorder.maps[s.map_at(h, t, j)]);
                // The sum of S numbers, its inverse and S products.
                EXPECT_NEAR(sum, 1, (static_cast<double>(s.keys()) / 8 + 8) * kEpsF32);
              }
            }
          }
        }
      }
    }
  }
  set_threads(0);
}

// Puts these weights in place of every map of the wanted layer.
struct Replace : attention::Editor {
  static float weight(int64_t head, int64_t position, int64_t key) {
    return 0.25f * static_cast<float>((head * 7 + position * 3 + key * 5) % 11) - 1;
  }
  bool wants(int layer) const override { return layer == 5; }
  void edit_maps(MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        for (int64_t j = 0; j < panel.keys; ++j) panel.positive_row(h, r)[j] = weight(h, panel.first_row + r, j);
      }
    }
  }
};

TEST(Taps, TheyComeOnlyWhereTheyAreWanted) {
  const auto s = grouped_attention(70, 0, 0);
  AttentionCase c(s, DType::f32);
  const auto untapped = c.run();
  Recorder recorder(s), other(s);
  recorder.wanted = 2;
  other.wanted = 3;
  const Taps taps{{&recorder, &other}, {}};
  EXPECT_TRUE(same_bits(c.run(DType::f32, {&taps, 1}), untapped)) << "a layer nobody wants is computed without taps";
  EXPECT_EQ(recorder.rows_of_maps + other.rows_of_maps + recorder.ended + other.ended, 0);
  c.run(DType::f32, {&taps, 3});
  EXPECT_EQ(recorder.rows_of_maps, 0);
  EXPECT_EQ(recorder.ended, 0);
  EXPECT_EQ(other.rows_of_maps, 70);
  EXPECT_EQ(other.ended, 1);
  // An editor of another layer beside an observer of this one.
  Replace elsewhere;
  Recorder here(s);
  here.wanted = 6;
  const Taps both{{&here}, {&elsewhere}};
  const auto expected = c.reference(false);
  EXPECT_TRUE(close_each(c.run(DType::f32, {&both, 6}), expected.out, c.tolerance(expected, DType::f32)));
  EXPECT_EQ(here.rows_of_maps, 70);
  EXPECT_FALSE((attention::TapContext{nullptr, 3}.active()));
  EXPECT_FALSE((attention::TapContext{&taps, 1}.active()));
  EXPECT_TRUE((attention::TapContext{&taps, 3}.active()));
}

// Doubles the outputs of head 1.
struct Double : attention::Editor {
  void edit_outputs(OutputPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int64_t w = 0; w < panel.value_width; ++w) panel.output[r * panel.row_stride + panel.value_width + w] *= 2;
    }
  }
};

TEST(Taps, EditorsChangeTheResultAsComputedByHand) {
  for (const int64_t window : {0, 3}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const auto s = grouped_attention(100, 9, window);
      AttentionCase c(s, type);
      Replace replace;
      Double twice;
      Recorder recorder(s);
      const Taps taps{{&recorder}, {&replace, &twice}};
      const auto out = c.run(DType::f32, {&taps, 5});
      // The maps hold whatever the editor put there, also where the window hides keys; a panel holds the keys of its
      // rows.
      std::vector<double> maps(recorder.maps.size());
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t t = 0; t < s.rows; ++t) {
          const int64_t keys =
              s.first_row + std::min<int64_t>(s.rows, (t / attention::kPanelRows + 1) * attention::kPanelRows);
          for (int64_t j = 0; j < keys; ++j) {
            maps[s.map_at(h, t, j)] = static_cast<double>(Replace::weight(h, s.first_row + t, j));
          }
        }
      }
      EXPECT_TRUE(close(recorder.maps, maps, 0)) << "observers see what editors made";
      auto expected = ref::attention_mix(s, maps, widen(c.v));
      for (int64_t t = 0; t < s.rows; ++t) {
        for (int64_t w = 0; w < s.value_dim; ++w) expected[s.out_at(t, 1, w)] *= 2;
      }
      // The weights are exact in bf16 (multiples of 1/4 below 2); sums of S products of at most 1.75·4, doubled.
      EXPECT_TRUE(close(out, expected, 2 * static_cast<double>(s.keys() * s.keys()) * kEpsF32 * 1.75 * 4.5));
      EXPECT_TRUE(same_bits(recorder.outputs, out));
    }
  }
}

// The same weights, put there with all rows in sight.
struct ReplaceAll : Replace {
  explicit ReplaceAll(const ref::AttentionSizes& sizes) : seen(sizes) {}
  bool wants_whole_maps() const override { return true; }
  void edit_maps(MapPanel& panel) override {
    EXPECT_EQ(panel.rows, seen.s.rows);
    seen.on_maps(panel);
    Replace::edit_maps(panel);
  }
  Recorder seen;
};

TEST(Taps, EditorsMayHaveAllRowsAtOnce) {
  for (const int64_t rows : {1, 127, 128, 129, 300}) {
    for (const int64_t first_row : {0, 33}) {
      const auto s = grouped_attention(rows, first_row, 40);
      AttentionCase c(s, DType::f32);
      Recorder untouched(s), after(s);
      const Taps look{{&untouched}, {}};
      c.run(DType::f32, {&look, 5});
      ReplaceAll replace(s);
      const Taps taps{{&after}, {&replace}};
      const auto out = c.run(DType::f32, {&taps, 5});
      EXPECT_TRUE(same_bits(replace.seen.maps, untouched.maps));
      EXPECT_EQ(replace.seen.seen, std::vector<int>(static_cast<size_t>(rows), 1));
      // A row uses the keys of its own 128 rows and of those before, as in panels.
      std::vector<double> maps(after.maps.size());
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t t = 0; t < rows; ++t) {
          const int64_t keys =
              first_row + std::min<int64_t>(rows, (t / attention::kPanelRows + 1) * attention::kPanelRows);
          for (int64_t j = 0; j < keys; ++j) {
            maps[s.map_at(h, t, j)] = static_cast<double>(Replace::weight(h, first_row + t, j));
          }
        }
      }
      const auto expected = ref::attention_mix(s, maps, widen(c.v));
      EXPECT_TRUE(close(out, expected, static_cast<double>(s.keys() * s.keys()) * kEpsF32 * 1.75 * 4.5));
    }
  }
}

TEST(Taps, AnEditorThatDoesNothingChangesNothing) {
  struct Nothing : attention::Editor {};
  const auto s = grouped_attention(100, 5, 0);
  AttentionCase c(s, DType::f32);
  Nothing nothing;
  const Taps taps{{}, {&nothing}};
  const auto expected = c.reference(false);
  EXPECT_TRUE(close_each(c.run(DType::f32, {&taps}), expected.out, c.tolerance(expected, DType::f32)));
}

TEST(Taps, WhatATapThrowsComesOut) {
  struct Thrower : attention::Observer {
    void on_maps(const MapPanel& panel) override {
      if (panel.first_row == attention::kPanelRows) throw std::runtime_error("enough");
    }
  };
  struct EditingThrower : attention::Editor {
    void edit_outputs(OutputPanel& /*panel*/) override { throw std::runtime_error("no"); }
  };
  const auto s = grouped_attention(attention::kPanelRows + 2, 0, 0);
  AttentionCase c(s, DType::f32);
  const auto before = c.run();
  Thrower thrower;
  EditingThrower editor;
  const Taps taps{{&thrower}, {}}, more{{}, {&editor}};
  EXPECT_THROW(c.run(DType::f32, {&taps}), std::runtime_error);
  EXPECT_THROW(c.run(DType::f32, {&more}), std::runtime_error);
  EXPECT_TRUE(same_bits(c.run(), before)) << "the workspace is as good as before";
}

// Without a noise term A1 V is the output, whatever editors made of A1.
TEST(Taps, TheTermOfTheOutputIsAskedFor) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto s = grouped_attention(200, 9, 0);
    AttentionCase c(s, type);
    Recorder recorder(s);
    Replace replace;
    const Taps plain{{&recorder}, {}}, edited{{}, {&replace}};
    for (const Taps* taps : {&plain, &edited}) {
      std::vector<float> term(recorder.outputs.size(), -77);
      const auto out = c.run(DType::f32, {taps, 5, nullptr, 0, Matrix(term.data(), s.rows, s.heads * s.value_dim), {}});
      EXPECT_TRUE(same_bits(term, out)) << info(type).name;
    }
  }
}

TEST(Taps, ValueNormsArePassedOn) {
  struct Norms : attention::Observer {
    void on_maps(const MapPanel& panel) override {
      norm = panel.value_norm;
      stride = panel.value_norm_stride;
    }
    const float* norm = nullptr;
    int64_t stride = 0;
  };
  AttentionCase c(grouped_attention(5, 0, 0), DType::f32);
  Norms norms;
  const Taps taps{{&norms}, {}};
  const float values[20] = {};
  c.run(DType::f32, {&taps, 0, values, 5});
  EXPECT_EQ(norms.norm, values);
  EXPECT_EQ(norms.stride, 5);
}

// Every row once, with ∂loss/∂P_ij = Σ_w dO_iw v_jw: a sum of W products, off by W·2⁻²⁴ of their magnitudes at most.
TEST(Taps, GradientsOfMapsAreProductsWithValues) {
  struct Gradients : attention::GradientObserver {
    void on_maps(const attention::GradientPanel& panel) override {
      EXPECT_EQ(panel.maps.layer, 5);
      EXPECT_EQ(panel.maps.first_row, first_row + seen);
      for (int64_t r = 0; r < panel.maps.rows; ++r, ++seen) {
        for (int64_t h = 0; h < s->heads; ++h) {
          for (int64_t j = 0; j < panel.maps.keys; ++j) {
            d_map[s->map_at(h, seen, j)] = panel.d_row(static_cast<int>(h), r)[j];
            maps[s->map_at(h, seen, j)] = panel.maps.positive_row(static_cast<int>(h), r)[j];
          }
        }
      }
    }
    const ref::AttentionSizes* s = nullptr;
    int64_t first_row = 0, seen = 0;
    std::vector<float> d_map, maps;
  };
  for (const int64_t rows : {1, 5, 129}) {
    for (const int64_t first_row : {0, 33}) {
      for (const int64_t window : {0, 3}) {
        const auto s = grouped_attention(rows, first_row, window);
        AttentionCase c(s, DType::f32);
        std::vector<float> d_out = random_floats(static_cast<size_t>(rows * s.heads * s.value_dim), 9);
        Gradients shown;
        shown.s = &s;
        shown.first_row = first_row;
        shown.d_map.assign(static_cast<size_t>(s.heads * rows * s.keys()), 0);
        shown.maps = shown.d_map;
        attention::show_gradients(shown, Matrix(d_out.data(), rows, s.heads * s.value_dim), 5, c.inputs(), c.config(),
                                  c.workspace);
        EXPECT_EQ(shown.seen, rows);
        const auto reference = c.reference(false);
        std::vector<double> tolerance;
        c.tolerance(reference, DType::f32, &tolerance);
        EXPECT_TRUE(close_each(shown.maps, reference.maps, tolerance));
        std::vector<double> expected(shown.d_map.size());
        tolerance.assign(expected.size(), 0);
        for (int64_t h = 0; h < s.heads; ++h) {
          for (int64_t t = 0; t < rows; ++t) {
            for (int64_t j = 0; j <= first_row + t; ++j) {
              for (int64_t w = 0; w < s.value_dim; ++w) {
                const double product =
                    static_cast<double>(d_out[s.out_at(t, h, w)]) * static_cast<double>(c.v[s.v_at(s.group(h), j, w)]);
                expected[s.map_at(h, t, j)] += product;
                tolerance[s.map_at(h, t, j)] += static_cast<double>(s.value_dim) * kEpsF32 * std::abs(product);
              }
            }
          }
        }
        EXPECT_TRUE(close_each(shown.d_map, expected, tolerance));
      }
    }
  }
}

TEST(Taps, GradientsOfWhatDoesNotFitAreRefused) {
  const auto s = grouped_attention(5, 0, 0);
  AttentionCase c(s, DType::f32);
  std::vector<float> d_out(static_cast<size_t>(5 * s.heads * s.value_dim));
  attention::GradientObserver nobody;
  const auto show = [&](int64_t cols, int64_t sequences) {
    return [&, cols, sequences] {
      attention::SignedInputs in = c.inputs();
      in.sequences = sequences;
      attention::show_gradients(nobody, Matrix(d_out.data(), 5, cols), 5, in, c.config(), c.workspace);
    };
  };
  EXPECT_NO_THROW(show(28, 1)());
  expect_error(show(7, 1), ErrorCode::shape, {"d_out [5, 7]", "5 rows of 4 heads of 7"});
  expect_error(show(28, 2), ErrorCode::shape, {"one text"});
}

}  // namespace
}  // namespace unchain::test
