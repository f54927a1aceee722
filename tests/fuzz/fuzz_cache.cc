// Entries of a cache that anyone may have written to. The input is what the place has under every name: it is believed only as the very
// entry that was asked for, and no name leads out of the place. The checksum at an entry's end is made right, or no mutation would pass it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/zip_writer.h"
#include "cache/cache.h"
#include "cache/redis_reply.h"

namespace {

using namespace coil;
using cache::Bytes;

void check(bool ok) {
  if (!ok) std::abort();
}

// Names are of letters, digits, '-', '.' and '/' (store.h), and stay below the place.
void check_name(const std::string& name) {
  check(!name.empty() && name[0] != '/' && name.find("..") == std::string::npos);
  check(std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.' || c == '/' || c == '_'; }));
}

class OneAnswer : public cache::Store {
 public:
  explicit OneAnswer(Bytes bytes) : bytes_(std::move(bytes)) {}
  std::string place() const override { return "input"; }
  Result<std::optional<Bytes>> get(const std::string& name) override {
    check_name(name);
    return std::optional<Bytes>(bytes_);
  }
  Status put(const std::string& name, std::span<const uint8_t>) override {
    check_name(name);
    return ok_status();
  }
  Status remove(const std::string&) override { return ok_status(); }
  Result<std::vector<std::string>> list(const std::string& prefix) override { return std::vector<std::string>{prefix + "0.entry"}; }

 private:
  const Bytes bytes_;
};

Bytes with_checksum(std::span<const uint8_t> input) {
  Bytes bytes(input.begin(), input.end());
  if (bytes.size() < 8) return bytes;
  const uint64_t hash = hash64(std::span<const uint8_t>(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &hash, 8);
  return bytes;
}

void unpack(cache::Cache& cache, std::span<const uint8_t> archive) {
  const Result<ZipReader> zip = ZipReader::from_bytes(archive, "input");
  if (zip.ok()) (void)cache.unpack(zip.value(), true).ok();
}

// As a server's answers, in pieces.
class Pieces : public cache::ByteSource {
 public:
  explicit Pieces(std::span<const uint8_t> bytes) : left_(bytes) {}
  Result<size_t> receive(std::span<uint8_t> into) override {
    const size_t n = std::min({left_.size(), into.size(), size_t{7}});
    if (n == 0) return Error{ErrorCode::file_unreadable, "the end", "", ""};
    std::copy_n(left_.begin(), n, into.begin());
    left_ = left_.subspan(n);
    return n;
  }

 private:
  std::span<const uint8_t> left_;
};

void read_replies(std::span<const uint8_t> input) {
  Pieces pieces(input);
  cache::ReplyReader reader(pieces);
  while (reader.read({1 << 20, 1000}).ok()) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  const Bytes entry = with_checksum(input);
  cache::Cache cache(std::make_unique<OneAnswer>(entry));
  const cache::Key key = {"tuning", "gemm [1, 2, 3]", {{"threads", "2"}, {"mode", "fast"}}};
  (void)cache.get(key);
  (void)cache.explain(key);
  ZipWriter zip = ZipWriter::in_memory();
  check(zip.add("tuning/0/0.entry", entry).ok());
  unpack(cache, zip.finish_in_memory());
  unpack(cache, input);
  // Nobody without the key makes an entry that counts.
  cache::Cache keyed(std::make_unique<OneAnswer>(entry), cache::Secret::from_text("0123456789abcdef").value());
  check(!keyed.get(key));
  (void)keyed.explain(key);
  read_replies(input);
  return 0;
}
