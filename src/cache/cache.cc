#include "cache/cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include "base/json.h"

#include "base/env.h"
#include "base/zip_writer.h"

namespace coil::cache {
namespace {

// magic, u64 size of the head, head (JSON of the key), payload, u64 XXH3-64 of all before. Of the second kind: behind it the code of a secret.
constexpr char kMagic[7] = {'C', 'O', 'I', 'L', 'E', 'N', 'T'};
constexpr uint8_t kPlain = '1', kSigned = '2';
constexpr size_t kCodeBytes = sizeof(Secret::Code);
constexpr size_t kMostCompared = 64;

std::string key_text(const Key& key) {
  Json fields = Json::array();
  for (const Field& f : key.fields) fields.push_back({f.name, f.value});
  return Json({{"kind", key.kind}, {"subject", key.subject}, {"fields", fields}}).dump();
}

Bytes encode(const Key& key, std::span<const uint8_t> payload, const std::optional<Secret>& secret) {
  const std::string head = key_text(key);
  Bytes out(16 + head.size() + payload.size() + 8);
  const uint64_t size = head.size();
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  out[sizeof kMagic] = secret ? kSigned : kPlain;
  std::memcpy(out.data() + 8, &size, 8);
  std::memcpy(out.data() + 16, head.data(), head.size());
  if (!payload.empty()) std::memcpy(out.data() + 16 + head.size(), payload.data(), payload.size());
  const uint64_t hash = hash64(std::span(out).first(out.size() - 8));
  std::memcpy(out.data() + out.size() - 8, &hash, 8);
  if (!secret) return out;
  const Secret::Code code = secret->code_of(out);
  out.insert(out.end(), code.begin(), code.end());
  return out;
}

struct Decoded {
  Key key;
  std::span<const uint8_t> payload;
};

// Kinds become folders: a word, so that an entry from elsewhere cannot lead out of the cache.
bool is_kind(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// Whether the secret's code is behind an entry. Asked before anything else of it is looked at.
bool is_signed(std::span<const uint8_t> bytes, const Secret& secret) {
  if (bytes.size() < sizeof kMagic + 1 + kCodeBytes || bytes[sizeof kMagic] != kSigned) return false;
  return secret.matches(bytes.first(bytes.size() - kCodeBytes), bytes.last(kCodeBytes));
}

// Nothing of an entry that is not exactly as it was written. Without a secret, codes say nothing and are left out.
std::optional<Decoded> decode(std::span<const uint8_t> bytes, const std::optional<Secret>& secret) {
  if (secret && !is_signed(bytes, *secret)) return std::nullopt;
  if (bytes.size() < 24 || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) return std::nullopt;
  if (bytes[sizeof kMagic] == kSigned && bytes.size() >= 24 + kCodeBytes) bytes = bytes.first(bytes.size() - kCodeBytes);
  else if (bytes[sizeof kMagic] != kPlain) return std::nullopt;
  uint64_t size = 0, hash = 0;
  std::memcpy(&size, bytes.data() + 8, 8);
  std::memcpy(&hash, bytes.data() + bytes.size() - 8, 8);
  if (size > bytes.size() - 24 || hash64(bytes.first(bytes.size() - 8)) != hash) return std::nullopt;
  Decoded d;
  try {
    const Json head = Json::parse({reinterpret_cast<const char*>(bytes.data()) + 16, size});
    d.key.kind = head.at("kind").get<std::string>();
    d.key.subject = head.at("subject").get<std::string>();
    for (const Json& f : head.at("fields")) d.key.fields.push_back({f.at(0).get<std::string>(), f.at(1).get<std::string>()});
  } catch (const Json::Exception&) {
    return std::nullopt;
  }
  if (!is_kind(d.key.kind)) return std::nullopt;
  d.payload = bytes.subspan(16 + size, bytes.size() - 24 - size);
  return d;
}

// "cpu is 'a', the nearest entry has 'b'"
std::vector<std::string> differences(const Key& wanted, const Key& have) {
  std::vector<std::string> out;
  for (const Field& f : wanted.fields) {
    const auto it = std::find_if(have.fields.begin(), have.fields.end(), [&](const Field& h) { return h.name == f.name; });
    if (it == have.fields.end()) out.push_back(fmt::format("{} is '{}', which the nearest entry does not have", f.name, f.value));
    else if (it->value != f.value) out.push_back(fmt::format("{} is '{}', the nearest entry has '{}'", f.name, f.value, it->value));
  }
  return out;
}

}  // namespace

std::string Key::folder() const { return fmt::format("{}/{}/", kind, hex(hash64(std::string_view(subject)))); }
std::string Key::name() const { return folder() + hex(hash128(key_text(*this))) + ".entry"; }

namespace {

// What stands in the place of a store that its user did not say is trusted.
class RefusedStore : public Store {
 public:
  RefusedStore(std::string place, Error why) : place_(std::move(place)), why_(std::move(why)) {}
  std::string place() const override { return place_; }
  Result<std::optional<Bytes>> get(const std::string&) override { return why_; }
  Status put(const std::string&, std::span<const uint8_t>) override { return why_; }
  Status remove(const std::string&) override { return why_; }
  Result<std::vector<std::string>> list(const std::string&) override { return why_; }

 private:
  const std::string place_;
  const Error why_;
};

}  // namespace

Result<std::shared_ptr<Cache>> Cache::open(const std::string& named, std::optional<Secret> key) {
  constexpr std::string_view kShared = "shared:";
  const Trust trust = named.starts_with(kShared) ? Trust::shared : Trust::own;
  const std::string place = trust == Trust::shared ? named.substr(kShared.size()) : named;
  const bool redis = place.starts_with("redis://") || place.starts_with("rediss://");
  if (place.empty() || (!redis && place.find("://") != std::string::npos)) {
    return Error{ErrorCode::bad_option, fmt::format("'{}' is no place for a cache", place), "",
                 "set COIL_CACHE to a folder, to redis://host:port or rediss://host:port (behind \"shared:\" if others may write there), or to off"};
  }
  if (!redis) return std::make_shared<Cache>(folder_store(place, trust), std::move(key));
  TRY(std::unique_ptr<Store> store, redis_store(place));
  if (trust == Trust::own && !key) {
    const Error why = {ErrorCode::bad_option,
                       fmt::format("the cache {} is not used: whoever can write to the server writes code that would run here", store->place()), "",
                       "set COIL_CACHE_KEY to a key that all who use it have, or COIL_CACHE=shared:redis://... if everyone who can write there is trusted"};
    store = std::make_unique<RefusedStore>(store->place(), why);
  }
  return std::make_shared<Cache>(std::move(store), std::move(key));
}

Result<std::shared_ptr<Cache>> Cache::from_env() {
  const std::optional<std::string> place = env("COIL_CACHE");
  if (place == "off") return std::shared_ptr<Cache>();
  TRY(std::optional<Secret> key, Secret::from_env());
  if (place) return open(*place, std::move(key));
  const char* home = std::getenv("HOME");
  if (!home || !*home) return std::shared_ptr<Cache>();
  return open(std::string(home) + "/.cache/coil/results", std::move(key));
}

// Failures are told as such, places and entries that are refused as what they are. The mutex is held.
void Cache::note(const Error& error) {
  (error.code == ErrorCode::bad_option ? distrust_ : problem_) =
      error.message + (error.code == ErrorCode::bad_option && !error.hint.empty() ? "; " + error.hint : "");
}

std::optional<Bytes> Cache::get(const Key& key) {
  const Result<std::optional<Bytes>> bytes = store_->get(key.name());
  std::optional<Bytes> payload;
  bool without_code = false;
  if (bytes.ok() && bytes.value()) {
    without_code = key_ && !is_signed(*bytes.value(), *key_);
    const std::optional<Decoded> d = decode(*bytes.value(), key_);
    if (d && d->key == key) payload = Bytes(d->payload.begin(), d->payload.end());
  }
  const std::lock_guard lock(mutex_);
  if (!bytes.ok()) note(bytes.error());
  unsigned_ += without_code;
  lookups_.push_back({key, payload.has_value()});
  return payload;
}

void Cache::put(const Key& key, std::span<const uint8_t> payload) {
  if (read_only_ || payload.size() > kMostEntryBytes / 2) return;
  const Status done = store_->put(key.name(), encode(key, payload, key_));
  const std::lock_guard lock(mutex_);
  if (!done.ok()) note(done.error());
}

std::string Cache::explain(const Key& key) {
  const Result<std::vector<std::string>> names = store_->list(key.folder());
  if (!names.ok()) return names.error().message;
  std::vector<std::string> nearest;
  bool any = false, damaged = false, without_code = false;
  for (size_t i = 0; i < std::min(names.value().size(), kMostCompared); ++i) {
    const Result<std::optional<Bytes>> bytes = store_->get(names.value()[i]);
    if (!bytes.ok() || !bytes.value()) continue;
    const std::optional<Decoded> d = decode(*bytes.value(), key_);
    if (names.value()[i] == key.name()) {
      damaged = damaged || !d;
      without_code = key_ && !is_signed(*bytes.value(), *key_);
    }
    if (!d) continue;
    std::vector<std::string> found = differences(key, d->key);
    if (!any || found.size() < nearest.size()) nearest = std::move(found);
    any = true;
  }
  if (without_code) return "its entry lacks the code of COIL_CACHE_KEY";
  if (damaged) return "its entry is damaged";
  if (!any) return "subject: there is no entry for it";
  return nearest.empty() ? "its entry was not there a moment ago" : fmt::format("{}", fmt::join(nearest, "; "));
}

std::vector<Lookup> Cache::lookups() const {
  const std::lock_guard lock(mutex_);
  return lookups_;
}

std::string Cache::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

std::string Cache::distrust() const {
  const std::lock_guard lock(mutex_);
  if (unsigned_ == 0) return distrust_;
  return fmt::format("{} entr{} of the cache {} not used: without the code of COIL_CACHE_KEY, somebody without the key wrote {}", unsigned_,
                     unsigned_ == 1 ? "y" : "ies", unsigned_ == 1 ? "was" : "were", unsigned_ == 1 ? "it" : "them");
}

Result<Totals> Cache::totals() {
  Totals t;
  TRY(const std::vector<std::string> names, store_->list(""));
  for (const std::string& name : names) {
    TRY(const std::optional<Bytes> bytes, store_->get(name));
    if (!bytes) continue;
    ++t.entries;
    t.bytes += bytes->size();
  }
  return t;
}

Result<Totals> Cache::clear() {
  TRY(const Totals t, totals());
  TRY(const std::vector<std::string> names, store_->list(""));
  for (const std::string& name : names) TRY_STATUS(store_->remove(name));
  return t;
}

Result<Totals> Cache::pack(const std::string& path) {
  Totals t;
  TRY(const std::vector<std::string> names, store_->list(""));
  TRY(ZipWriter zip, ZipWriter::create(path));
  for (const std::string& name : names) {
    TRY(const std::optional<Bytes> bytes, store_->get(name));
    const std::optional<Decoded> d = bytes ? decode(*bytes, key_) : std::nullopt;
    if (!d || d->key.name() != name) continue;
    const Bytes entry = encode(d->key, d->payload, key_);
    TRY_STATUS(zip.add(name, entry));
    ++t.entries;
    t.bytes += entry.size();
  }
  TRY_STATUS(zip.finish());
  return t;
}

Result<Totals> Cache::unpack(const ZipReader& zip, bool trusted) {
  if (!trusted && !key_) {
    return Error{ErrorCode::bad_option, fmt::format("what '{}' holds is code that later compiles run: nothing says who wrote it", zip.name()), "",
                 "set COIL_CACHE_KEY to the key that it was packed with, or say --trust if it comes from someone who may run code here"};
  }
  Totals t;
  for (const ZipEntry& entry : zip.entries()) {
    TRY(const Bytes bytes, zip.read(entry, kMostEntryBytes));
    if (!trusted && !is_signed(bytes, *key_)) {
      return Error{ErrorCode::bad_archive,
                   fmt::format("'{}' in it does not carry the code of COIL_CACHE_KEY: it was packed without this key, or changed since", entry.name),
                   zip.name(), "pack it again with the key, or say --trust if it comes from someone who may run code here"};
    }
    const std::optional<Decoded> d = decode(bytes, std::nullopt);
    if (!d)
      return Error{ErrorCode::bad_archive, fmt::format("'{}' in it is no entry of a cache", entry.name), zip.name(),
                   "give a file that `coil cache pack` wrote"};
    const Bytes own = encode(d->key, d->payload, key_);
    TRY_STATUS(store_->put(d->key.name(), own));  // under the name of its key, whatever the archive says
    ++t.entries;
    t.bytes += own.size();
  }
  return t;
}

}  // namespace coil::cache
