#include "text/token_file.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "base/thread.h"
#include "text/corpus.h"

namespace unchain::text {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[] = "UNCHNTOK";
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version, width;
  uint64_t tokens, documents, bytes, text_hash, vocabulary_hash, content_hash;
};
static_assert(sizeof(Header) == 64);

std::string_view as_text(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

// Throws unless the header's numbers describe a file of this size.
void check_header(const Header& h, size_t size, const std::string& where) {
  if (std::memcmp(h.magic, kMagic, sizeof h.magic) != 0) fail(ErrorCode::format, "{}: is no token file", where);
  if (h.version != kVersion)
    fail(ErrorCode::format, "{}: token file of version {}, expected {}; remove it", where, h.version, kVersion);
  const uint64_t room = size - sizeof(Header);
  const bool counts = (h.width == 2 || h.width == 4) && h.documents >= 1 && h.documents <= h.tokens &&
                      h.tokens <= room / h.width && h.documents <= room / sizeof(int64_t) && h.bytes <= INT64_MAX;
  if (!counts || h.documents * sizeof(int64_t) + h.tokens * h.width != room) {
    fail(ErrorCode::format, "{}: {} documents and {} tokens of {} bytes do not make a file of {} bytes; remove it",
         where, h.documents, h.tokens, h.width, size);
  }
}

template <class T>
void check_ids(std::span<const T> ids, int32_t vocabulary, const std::string& where) {
  const auto wrong =
      std::find_if(ids.begin(), ids.end(), [&](T id) { return id >= static_cast<uint32_t>(vocabulary); });
  if (wrong != ids.end()) {
    fail(ErrorCode::format, "{}: token {} has id {}, but the vocabulary has {} pieces; remove the file", where,
         wrong - ids.begin(), *wrong, vocabulary);
  }
}

// Calls use(bytes) for each document's ids in the file's type.
template <class T, class Use>
void each_document(const std::vector<std::vector<int32_t>>& documents, const Use& use) {
  std::vector<T> ids;
  for (const std::vector<int32_t>& document : documents) {
    ids.assign(document.begin(), document.end());
    use(as_text(ids.data(), ids.size() * sizeof(T)));
  }
}

std::vector<std::vector<int32_t>> encode(const std::vector<std::string>& documents,
                                         const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> ids(documents.size());
  parallel_for(static_cast<int64_t>(documents.size()), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    ids[at] = tokenizer.encode(documents[at]);
    if (tokenizer.bos >= 0) ids[at].insert(ids[at].begin(), tokenizer.bos);
  });
  std::erase_if(ids, [](const std::vector<int32_t>& document) { return document.empty(); });
  return ids;
}

}  // namespace

TokenFile TokenFile::open(const fs::path& path, const tokenizer::Tokenizer& tokenizer) {
  TokenFile result;
  result.file_ = MappedFile::open(path);
  const std::span<const std::byte> bytes = result.file_.bytes();
  const std::string where = path.string();
  if (bytes.size() < sizeof(Header)) fail(ErrorCode::format, "{}: has {} bytes, no token file", where, bytes.size());
  Header h;
  std::memcpy(&h, bytes.data(), sizeof h);
  check_header(h, bytes.size(), where);
  if (h.vocabulary_hash != hash_vocabulary(tokenizer))
    fail(ErrorCode::format, "{}: was made with another vocabulary; remove it, or use that one", where);
  const auto* body = bytes.data() + sizeof(Header);
  if (hash_bytes(as_text(body, bytes.size() - sizeof(Header))) != h.content_hash)
    fail(ErrorCode::format, "{}: is damaged: the content does not give the hash in its header; remove it", where);
  result.tokens_ = static_cast<int64_t>(h.tokens);
  result.bytes_ = static_cast<int64_t>(h.bytes);
  result.width_ = h.width;
  result.text_hash_ = h.text_hash;
  // The map begins at a page, the header has 64 bytes: all parts are aligned.
  result.starts_ = {reinterpret_cast<const int64_t*>(body), h.documents};
  const auto* ids = body + h.documents * sizeof(int64_t);
  for (size_t i = 0; i < result.starts_.size(); ++i) {
    const int64_t start = result.starts_[i], before = i == 0 ? -1 : result.starts_[i - 1];
    if (start <= before || start >= result.tokens_ || (i == 0 && start != 0)) {
      fail(ErrorCode::format, "{}: document {} begins at token {}, the one before at {}, of {}; remove it", where, i,
           start, before, result.tokens_);
    }
  }
  if (h.width == 2) {
    result.narrow_ = reinterpret_cast<const uint16_t*>(ids);
    check_ids(std::span(result.narrow_, h.tokens), tokenizer.size(), where);
  } else {
    result.wide_ = reinterpret_cast<const uint32_t*>(ids);
    check_ids(std::span(result.wide_, h.tokens), tokenizer.size(), where);
  }
  return result;
}

int64_t TokenFile::document_start(int64_t position) const {
  return *(std::upper_bound(starts_.begin(), starts_.end(), position) - 1);
}

void TokenFile::copy(int64_t first, std::span<int32_t> out) const {
  for (size_t i = 0; i < out.size(); ++i) out[i] = (*this)[first + static_cast<int64_t>(i)];
}

uint64_t hash_documents(const std::vector<std::string>& documents) noexcept {
  uint64_t hash = hash_bytes("documents");
  for (const std::string& document : documents) hash = hash_bytes(document, hash_number(document.size(), hash));
  return hash;
}

uint64_t hash_vocabulary(const tokenizer::Tokenizer& tokenizer) {
  uint64_t hash = hash_bytes(tokenizer.kind);
  const auto add = [&](std::string_view part) { hash = hash_bytes(part, hash_number(part.size(), hash)); };
  for (int32_t id = 0; id < tokenizer.size(); ++id) add(tokenizer.piece(id));
  hash = hash_number(static_cast<uint32_t>(tokenizer.bos), hash);
  // Two sets of merges over the same pieces differ in what they make of words.
  for (const int32_t id :
       tokenizer.encode("The quick brown fox, whose 42 cousins\n\tjumped  over 'lazy' dögs; isn't it?"))
    hash = hash_number(static_cast<uint32_t>(id), hash);
  return hash;
}

void write_token_file(const fs::path& path, const std::vector<std::string>& documents,
                      const tokenizer::Tokenizer& tokenizer) {
  const std::vector<std::vector<int32_t>> ids = encode(documents, tokenizer);
  if (ids.empty()) fail(ErrorCode::format, "{}: there are no documents to write", path.string());
  Header h{{}, kVersion, tokenizer.size() > 65536 ? 4U : 2U, 0, ids.size(), 0, hash_documents(documents), 0, 0};
  std::memcpy(h.magic, kMagic, sizeof h.magic);
  h.bytes = total_bytes(documents);
  h.vocabulary_hash = hash_vocabulary(tokenizer);
  std::vector<int64_t> starts;
  for (const std::vector<int32_t>& document : ids) {
    starts.push_back(static_cast<int64_t>(h.tokens));
    h.tokens += document.size();
  }
  h.content_hash = hash_bytes(as_text(starts.data(), starts.size() * sizeof(int64_t)));
  const auto each = [&](const auto& use) {
    h.width == 2 ? each_document<uint16_t>(ids, use) : each_document<uint32_t>(ids, use);
  };
  each([&](std::string_view bytes) { h.content_hash = hash_bytes(bytes, h.content_hash); });
  AtomicFile file(path);
  file.write(&h, sizeof h);
  file.write(starts.data(), starts.size() * sizeof(int64_t));
  each([&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

TokenFile cached_tokens(const std::vector<fs::path>& files, const tokenizer::Tokenizer& tokenizer,
                        const fs::path& cache) {
  const std::vector<std::string> documents = read_documents(files);
  const uint64_t text_hash = hash_documents(documents);
  const fs::path path = cache / fmt::format("tokens-{:016x}-{:016x}.bin", text_hash, hash_vocabulary(tokenizer));
  if (fs::exists(path)) {
    try {
      TokenFile found = TokenFile::open(path, tokenizer);
      if (found.text_hash() == text_hash) return found;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::format) throw;  // damaged: written again below
    }
  }
  std::error_code error;
  fs::create_directories(cache, error);
  if (error) fail(ErrorCode::io, "{}: cannot be made: {}", cache.string(), error.message());
  write_token_file(path, documents, tokenizer);
  return TokenFile::open(path, tokenizer);
}

}  // namespace unchain::text
