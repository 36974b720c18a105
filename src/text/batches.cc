#include "text/batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace unchain::text {
namespace {

constexpr uint64_t kStream = uint64_t{1} << 40;  // of the run's seed, one an epoch
constexpr int64_t kMost = int64_t{1} << 30;      // rows, positions

Batch empty_batch(int64_t rows, int64_t context) {
  Batch batch;
  batch.rows = rows;
  batch.context = context;
  const auto size = static_cast<size_t>(rows * context);
  batch.inputs.resize(size);
  batch.targets.resize(size);
  batch.document_starts.assign(size, 0);
  batch.needles.assign(static_cast<size_t>(rows), false);
  return batch;
}

std::span<int32_t> row_of(std::vector<int32_t>& values, int64_t row, int64_t context) {
  return std::span(values).subspan(static_cast<size_t>(row * context), static_cast<size_t>(context));
}

}  // namespace

RowRange rows_of(int64_t rows, int64_t micro_rows, int64_t micro_step, int64_t rank, int64_t ranks) {
  const int64_t first = std::min(rows, (micro_step * ranks + rank) * micro_rows);
  return {first, std::min(micro_rows, rows - first)};
}

Batches::Batches(TokenFile data, const BatchOptions& options, std::shared_ptr<const NeedleDocuments> needles)
    : data_(std::move(data)), options_(options), needles_(std::move(needles)) {
  if (options.context < 1 || options.context > kMost || options.rows < 1 || options.rows > kMost) {
    fail(ErrorCode::usage, "train: context {} and {} rows a step, expected both from 1 to {}", options.context,
         options.rows, kMost);
  }
  if (!(options.needle_share >= 0 && options.needle_share <= 1))
    fail(ErrorCode::usage, "data.needles.share: is {}, expected 0 to 1", options.needle_share);
  if (options.needle_steps < 0)
    fail(ErrorCode::usage, "train: {} steps of needles alone, expected 0 or more", options.needle_steps);
  samples_ = (data_.tokens() - 1) / options.context;
  needle_rows_ = std::llround(options.needle_share * static_cast<double>(options.rows));
  if (options.needle_share > 0 && needle_rows_ == 0) {
    fail(ErrorCode::usage,
         "data.needles.share: {} of {} rows a step is less than half a row; raise it or "
         "train.batch_tokens",
         options.needle_share, options.rows);
  }
  if ((needle_rows_ > 0 || options.needle_steps > 0) && !needles_)
    fail(ErrorCode::usage, "data.needles.share: is above 0, but there are no needles");
  if (needles_ && needles_->context() != options.context) {
    fail(ErrorCode::internal, "train: needle documents of context {} for batches of {}", needles_->context(),
         options.context);
  }
  if (samples_ < 1 || samples_ > UINT32_MAX) {
    fail(ErrorCode::format, "{}: has {} tokens, a sample takes {}; give more text or a shorter train.context",
         data_.path().string(), data_.tokens(), options.context + 1);
  }
}

int64_t Batches::sample_at(int64_t number) {
  const int64_t epoch = number / samples_;
  if (epoch != epoch_) {
    order_.resize(static_cast<size_t>(samples_));
    std::iota(order_.begin(), order_.end(), 0U);
    Rng rng(options_.seed, kStream + static_cast<uint64_t>(epoch));
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng.below(i)]);
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(number % samples_)];
}

void Batches::read_sample(int64_t sample, int64_t row, Batch& batch) const {
  const int64_t context = options_.context, first = sample * context;
  data_.copy(first, row_of(batch.inputs, row, context));
  data_.copy(first + 1, row_of(batch.targets, row, context));
  batch.text_targets += context;
  if (!options_.separate_documents) return;
  const std::span<const int64_t> starts = data_.document_starts();
  auto next = std::upper_bound(starts.begin(), starts.end(), first);  // the document after the one at hand
  int64_t start = 0;
  const std::span<int32_t> out = row_of(batch.document_starts, row, context);
  for (int64_t i = 0; i < context; ++i) {
    if (next != starts.end() && *next == first + i) {
      start = i;
      ++next;
    }
    out[static_cast<size_t>(i)] = static_cast<int32_t>(start);
  }
}

Batch Batches::read(int64_t step, RowRange range) {
  Batch batch = empty_batch(range.count, options_.context);
  const int64_t alone = std::min(step, options_.needle_steps), mixed = step - alone;  // steps before this one
  const int64_t needle_rows = needle_rows_at(step);
  // Needle rows lie evenly among the others, so that all ranks and micro steps get their share.
  const auto needles_before = [&](int64_t row) { return row * needle_rows / options_.rows; };
  const double progress = static_cast<double>(step) / static_cast<double>(std::max<int64_t>(options_.steps, 1));
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t row = range.first + i, before = needles_before(row);
    if (needles_before(row + 1) == before) {
      read_sample(sample_at(mixed * (options_.rows - needle_rows_) + row - before), i, batch);
      continue;
    }
    const auto targets = row_of(batch.targets, i, options_.context);
    const auto starts = row_of(batch.document_starts, i, options_.context);
    needles_->fill_row(static_cast<uint64_t>(alone * options_.rows + mixed * needle_rows_ + before),
                       std::min(progress, 1.0), row_of(batch.inputs, i, options_.context), targets, starts);
    batch.needles[static_cast<size_t>(i)] = true;
    batch.answer_targets += static_cast<int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), -1);
    if (!options_.separate_documents) std::fill(starts.begin(), starts.end(), 0);
  }
  return batch;
}

Batch Batches::in_order(RowRange range) const {
  Batch batch = empty_batch(range.count, options_.context);
  for (int64_t i = 0; i < range.count; ++i) read_sample(range.first + i, i, batch);
  return batch;
}

}  // namespace unchain::text
