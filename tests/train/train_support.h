// A model whose gradient is known by hand, ranks that are threads, and a small run.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <thread>

#include "support/random_values.h"
#include "support/temporary_folder.h"
#include "train/run.h"

namespace unchain::test {

// The logits of the token after t are row t of a table plus a bias.
class Bigram : public train::Learner {
 public:
  Bigram(int64_t vocabulary, uint64_t seed)
      : size_(static_cast<size_t>(vocabulary)),
        table_(random_floats(size_ * size_, seed, 0.1)),
        bias_(size_, 0.0f),
        d_table_(table_.size()),
        d_bias_(size_),
        parameters_{{"table.weight", "embedding", {vocabulary, vocabulary}, true, table_, d_table_, {}},
                    {"table.bias", "norm", {vocabulary}, false, bias_, d_bias_, {}}} {}
  std::span<model::Parameter> parameters() override { return parameters_; }
  void zero_gradients() override {
    std::ranges::fill(d_table_, 0.0f);
    std::ranges::fill(d_bias_, 0.0f);
  }
  void forward(std::span<double> nll, const model::TrainRows& rows) override { pass(nll, rows, false); }
  void forward_backward(std::span<double> nll, const model::TrainRows& rows) override {
    ++passes;
    if (fail_at == passes) fail_now(rows);
    pass(nll, rows, true);
  }
  std::vector<double> lambdas() const override { return {std::nan(""), 0.5}; }
  std::string config_json() const override { return "{\"model_type\": \"bigram\"}\n"; }

  int passes = 0, fail_at = 0;
  std::function<void(const model::TrainRows&)> fail_now;

 private:
  void pass(std::span<double> nll, const model::TrainRows& rows, bool backward) {
    std::vector<double> p(size_);
    for (size_t i = 0; i < rows.inputs.size(); ++i) {
      nll[i] = 0;
      if (rows.targets[i] < 0) continue;
      const size_t row = static_cast<size_t>(rows.inputs[i]) * size_, target = static_cast<size_t>(rows.targets[i]);
      double sum = 0;
      for (size_t j = 0; j < size_; ++j) sum += p[j] = std::exp(static_cast<double>(table_[row + j]) + bias_[j]);
      nll[i] = std::log(sum) - std::log(p[target]);
      const double weight = rows.weights.empty() ? 1 : rows.weights[i];
      for (size_t j = 0; backward && j < size_; ++j) {
        const double d = weight * (p[j] / sum - (j == target ? 1 : 0));
        d_table_[row + j] += static_cast<float>(d);
        d_bias_[j] += static_cast<float>(d);
      }
    }
  }

  size_t size_;
  std::vector<float> table_, bias_, d_table_, d_bias_;
  std::vector<model::Parameter> parameters_;
};

// Ranks as threads of one process. An error on one ends the wait of the others.
class ThreadComm : public dist::Comm {
 public:
  struct Shared {
    explicit Shared(int64_t n) : ranks(n), gate(n) {}
    int64_t ranks;
    std::barrier<> gate;
    std::vector<std::vector<double>> values = std::vector<std::vector<double>>(static_cast<size_t>(ranks));
    std::vector<std::byte> bytes;
    std::atomic<bool> failed = false;
  };
  ThreadComm(Shared& shared, int64_t rank) : shared_(shared), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return shared_.ranks; }
  int64_t local_ranks() const override { return shared_.ranks; }
  void sum(std::span<float> values) override { sum_of(values); }
  void sum(std::span<double> values) override { sum_of(values); }
  void broadcast(std::span<std::byte> bytes) override {
    if (rank_ == 0) shared_.bytes.assign(bytes.begin(), bytes.end());
    barrier();
    std::ranges::copy(shared_.bytes, bytes.begin());
    barrier();
  }
  void barrier() override {
    shared_.gate.arrive_and_wait();
    if (shared_.failed) throw std::runtime_error(kOtherFailed);
  }
  void abort(int) override { throw std::logic_error("abort"); }
  void leave(bool failed) {
    if (failed) shared_.failed = true;
    shared_.gate.arrive_and_drop();
  }
  static constexpr const char* kOtherFailed = "another rank failed";

 private:
  template <class T>
  void sum_of(std::span<T> values) {
    auto& own = shared_.values[static_cast<size_t>(rank_)];
    own.assign(values.begin(), values.end());
    barrier();
    for (size_t i = 0; i < values.size(); ++i) {
      T total = 0;
      for (const auto& part : shared_.values) total += static_cast<T>(part[i]);
      values[i] = total;
    }
    barrier();
  }
  Shared& shared_;
  int64_t rank_;
};

// Calls body(comm) on each of `ranks` threads; returns the first error's message, empty if there is none.
inline std::string on_ranks(int64_t ranks, const std::function<void(dist::Comm&)>& body) {
  ThreadComm::Shared shared(ranks);
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadComm comm(shared, rank);
      try {
        body(comm);
      } catch (const std::exception& error) {
        messages[static_cast<size_t>(rank)] = error.what();
      }
      comm.leave(!messages[static_cast<size_t>(rank)].empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages)
    if (!message.empty() && message != ThreadComm::kOtherFailed) return message;
  return {};
}

inline const std::string kVocabulary = UNCHAIN_TEST_DATA "/vocabulary";

// 20 steps of 4 rows of 32 tokens.
inline train::RunConfig small_config() {
  train::RunConfig config;
  config.model = {{"hidden_size", 16}, {"intermediate_size", 32}, {"num_hidden_layers", 1}, {"num_attention_heads", 2}};
  config.data.train = {kVocabulary + "/text.txt"};
  config.data.valid = config.data.train;
  config.data.vocabulary = kVocabulary;
  config.train.tokens = 20 * 128;
  config.train.context = 32;
  config.train.batch_tokens = 128;
  config.train.micro_batch = 4;
  config.train.dtype = "f32";
  config.train.evaluate_every = 10;
  config.train.save_every = 5;
  config.train.warmup = 0.1;
  return config;
}

inline train::MakeLearner make_bigram(const std::function<void(Bigram&)>& change = {}) {
  return [change](const model::Config& config, DType, uint64_t seed, bool) {
    auto learner = std::make_unique<Bigram>(config.vocabulary, seed);
    if (change) change(*learner);
    return learner;
  };
}

}  // namespace unchain::test
