#include "train/data.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/check.h"
#include "text/corpus.h"

namespace unchain::train {
namespace {

namespace fs = std::filesystem;

text::TokenFile open_tokens(const std::vector<std::string>& files, const tokenizer::Tokenizer& tokenizer,
                            const fs::path& cache, int64_t context, dist::Comm& comm) {
  const std::vector<fs::path> paths(files.begin(), files.end());
  if (comm.rank() > 0) comm.barrier();  // the first rank writes the cache, the others find it
  text::TokenFile tokens = text::cached_tokens(paths, tokenizer, cache);
  if (comm.rank() == 0) comm.barrier();
  if (tokens.tokens() <= context) {
    fail(ErrorCode::format, "{}: has {} tokens, a sample takes {}; give more text or a shorter train.context",
         files.front(), tokens.tokens(), context + 1);
  }
  return tokens;
}

std::shared_ptr<const text::NeedleDocuments> needles(const RunConfig& config,
                                                     const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer) {
  const NeedleKeys& keys = config.data.needles;
  if (keys.share == 0) return nullptr;
  std::string text;
  const std::vector<fs::path> paths(config.data.train.begin(), config.data.train.end());
  for (const std::string& document : text::read_documents(paths)) text.append(document).append("\n");
  const text::NeedleDocumentOptions options = {.form = text::parse_needle_form(keys.form),
                                               .count = keys.count,
                                               .rise = keys.rise,
                                               .filler = keys.filler,
                                               .filler_rise = keys.filler_rise,
                                               .seed = static_cast<uint64_t>(config.train.seed)};
  return std::make_shared<const text::NeedleDocuments>(
      tokenizer, options, config.train.context,
      std::make_shared<const text::Haystack>(std::move(text), config.data.train.front()));
}

text::BatchOptions validation_options(const RunConfig& config) {
  return {.context = config.train.context, .separate_documents = config.data.separate_documents};
}

}  // namespace

Validation::Validation(const text::TokenFile& tokens, const tokenizer::Tokenizer& tokenizer, const RunConfig& config)
    : batches_(tokens, validation_options(config)),
      context_(config.train.context),
      micro_(config.train.micro_batch),
      bytes_(tokens.bytes()) {
  // What is not scored: the first token, unless it is BOS, which has no bytes, and the end.
  const int64_t scored_end = 1 + batches_.samples() * context_;
  std::vector<int32_t> left = {tokens[0]};
  for (int64_t i = scored_end; i < tokens.tokens(); ++i) left.push_back(tokens[i]);
  std::erase_if(left, [&](int32_t id) { return id == tokenizer.bos; });
  if (!left.empty()) bytes_ -= static_cast<int64_t>(tokenizer.decode(left).size());
}

ValidLoss Validation::measure(Learner& learner, dist::Comm& comm) const {
  double sum[] = {0, 0};  // nats, tokens
  std::vector<double> nll;
  const int64_t rows = batches_.samples(), ranks = comm.ranks();
  const int64_t micro = std::min(micro_, (rows + ranks - 1) / ranks);
  for (int64_t i = 0; i * micro * ranks < rows; ++i) {
    const text::RowRange range = text::rows_of(rows, micro, i, comm.rank(), ranks);
    if (range.count == 0) continue;
    const text::Batch batch = batches_.in_order(range);
    nll.resize(batch.inputs.size());
    learner.forward(nll, {batch.rows, batch.context, batch.inputs, batch.targets, batch.document_starts, {}});
    sum[0] += std::accumulate(nll.begin(), nll.end(), 0.0);
    sum[1] += static_cast<double>(batch.text_targets);
  }
  comm.sum(std::span<double>(sum));
  ValidLoss loss;
  loss.tokens = static_cast<int64_t>(sum[1]);
  loss.loss_nats = sum[0] / sum[1];
  loss.perplexity = std::exp(loss.loss_nats);
  loss.bits_per_byte = sum[0] / (std::numbers::ln2 * static_cast<double>(std::max<int64_t>(bytes_, 1)));
  return loss;
}

std::vector<int32_t> Validation::beginning(int64_t count) const {
  std::vector<int32_t> ids = batches_.in_order({0, 1}).inputs;
  ids.resize(std::min(ids.size(), static_cast<size_t>(count)));
  return ids;
}

std::shared_ptr<const tokenizer::Tokenizer> open_vocabulary(const RunConfig& config) {
  return tokenizer::from_folder(config.data.vocabulary);
}

RunData open_data(const RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const fs::path& cache,
                  dist::Comm& comm) {
  RunData data;
  data.tokenizer = std::move(tokenizer);
  const text::TokenFile tokens = open_tokens(config.data.train, *data.tokenizer, cache, config.train.context, comm);
  data.text_hash = tokens.text_hash();
  data.vocabulary_hash = text::hash_vocabulary(*data.tokenizer);
  const double alone = config.data.needles.share > 0 ? config.data.needles.alone : 0;
  const text::BatchOptions options = {.context = config.train.context,
                                      .rows = config.train.rows(),
                                      .steps = config.train.steps(),
                                      .needle_share = config.data.needles.share,
                                      .needle_steps = std::llround(alone * static_cast<double>(config.train.steps())),
                                      .separate_documents = config.data.separate_documents,
                                      .seed = static_cast<uint64_t>(config.train.seed)};
  data.batches = std::make_unique<text::Batches>(tokens, options, needles(config, data.tokenizer));
  if (!config.data.valid.empty()) {
    data.validation.emplace(open_tokens(config.data.valid, *data.tokenizer, cache, config.train.context, comm),
                            *data.tokenizer, config);
  }
  return data;
}

}  // namespace unchain::train
