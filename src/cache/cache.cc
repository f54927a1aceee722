#include "cache/cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "base/zip_writer.h"

namespace coil::cache {
namespace {

using Json = nlohmann::ordered_json;

// magic, u64 size of the head, head (JSON of the key), payload, u64 XXH3-64 of all before.
constexpr char kMagic[8] = {'C', 'O', 'I', 'L', 'E', 'N', 'T', '1'};
constexpr size_t kMostCompared = 64;

std::string key_text(const Key& key) {
  Json fields = Json::array();
  for (const Field& f : key.fields) fields.push_back({f.name, f.value});
  return Json({{"kind", key.kind}, {"subject", key.subject}, {"fields", fields}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Bytes encode(const Key& key, std::span<const uint8_t> payload) {
  const std::string head = key_text(key);
  Bytes out(sizeof kMagic + 8 + head.size() + payload.size() + 8);
  const uint64_t size = head.size();
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  std::memcpy(out.data() + 8, &size, 8);
  std::memcpy(out.data() + 16, head.data(), head.size());
  if (!payload.empty()) std::memcpy(out.data() + 16 + head.size(), payload.data(), payload.size());
  const uint64_t hash = hash64(std::span(out).first(out.size() - 8));
  std::memcpy(out.data() + out.size() - 8, &hash, 8);
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

// Nothing of an entry that is not exactly as it was written.
std::optional<Decoded> decode(std::span<const uint8_t> bytes) {
  if (bytes.size() < 24 || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) return std::nullopt;
  uint64_t size = 0, hash = 0;
  std::memcpy(&size, bytes.data() + 8, 8);
  std::memcpy(&hash, bytes.data() + bytes.size() - 8, 8);
  if (size > bytes.size() - 24 || hash64(bytes.first(bytes.size() - 8)) != hash) return std::nullopt;
  Decoded d;
  const Json head = Json::parse(bytes.begin() + 16, bytes.begin() + 16 + static_cast<ptrdiff_t>(size), nullptr, false);
  try {
    d.key.kind = head.at("kind").get<std::string>();
    d.key.subject = head.at("subject").get<std::string>();
    for (const Json& f : head.at("fields")) d.key.fields.push_back({f.at(0).get<std::string>(), f.at(1).get<std::string>()});
  } catch (const Json::exception&) {
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

Result<std::shared_ptr<Cache>> Cache::open(const std::string& place) {
  constexpr std::string_view kRedis = "redis://";
  if (!place.starts_with(kRedis) && place.find("://") != std::string::npos) {
    return Error{ErrorCode::bad_option, fmt::format("'{}' is no place for a cache", place), "", "set COIL_CACHE to a folder, to redis://host:port, or to off"};
  }
  if (!place.starts_with(kRedis)) return std::make_shared<Cache>(folder_store(place));
  TRY(std::unique_ptr<Store> store, redis_store(place.substr(kRedis.size())));
  return std::make_shared<Cache>(std::move(store));
}

Result<std::shared_ptr<Cache>> Cache::from_env() {
  const std::optional<std::string> place = env("COIL_CACHE");
  if (place == "off") return std::shared_ptr<Cache>();
  if (place) return open(*place);
  const char* home = std::getenv("HOME");
  if (!home || !*home) return std::shared_ptr<Cache>();
  return open(std::string(home) + "/.cache/coil/results");
}

void Cache::note(const Status& status) {
  if (!status.ok()) problem_ = status.error().message;
}

std::optional<Bytes> Cache::get(const Key& key) {
  const Result<std::optional<Bytes>> bytes = store_->get(key.name());
  std::optional<Bytes> payload;
  if (bytes.ok() && bytes.value()) {
    const std::optional<Decoded> d = decode(*bytes.value());
    if (d && d->key == key) payload = Bytes(d->payload.begin(), d->payload.end());
  }
  const std::lock_guard lock(mutex_);
  if (!bytes.ok()) problem_ = bytes.error().message;
  lookups_.push_back({key, payload.has_value()});
  return payload;
}

void Cache::put(const Key& key, std::span<const uint8_t> payload) {
  if (read_only_ || payload.size() > kMostEntryBytes / 2) return;
  const Status done = store_->put(key.name(), encode(key, payload));
  const std::lock_guard lock(mutex_);
  note(done);
}

std::string Cache::explain(const Key& key) {
  const Result<std::vector<std::string>> names = store_->list(key.folder());
  if (!names.ok()) return names.error().message;
  std::vector<std::string> nearest;
  bool any = false, damaged = false;
  for (size_t i = 0; i < std::min(names.value().size(), kMostCompared); ++i) {
    const Result<std::optional<Bytes>> bytes = store_->get(names.value()[i]);
    if (!bytes.ok() || !bytes.value()) continue;
    const std::optional<Decoded> d = decode(*bytes.value());
    damaged = damaged || (!d && names.value()[i] == key.name());
    if (!d) continue;
    std::vector<std::string> found = differences(key, d->key);
    if (!any || found.size() < nearest.size()) nearest = std::move(found);
    any = true;
  }
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
    if (!bytes || !decode(*bytes)) continue;
    TRY_STATUS(zip.add(name, *bytes));
    ++t.entries;
    t.bytes += bytes->size();
  }
  TRY_STATUS(zip.finish());
  return t;
}

Result<Totals> Cache::unpack(const ZipReader& zip) {
  Totals t;
  for (const ZipEntry& entry : zip.entries()) {
    TRY(const Bytes bytes, zip.read(entry, kMostEntryBytes));
    const std::optional<Decoded> d = decode(bytes);
    if (!d) return Error{ErrorCode::bad_archive, fmt::format("'{}' in it is no entry of a cache", entry.name), zip.name(), "give a file that `coil cache pack` wrote"};
    TRY_STATUS(store_->put(d->key.name(), bytes));  // under the name of its key, whatever the archive says
    ++t.entries;
    t.bytes += bytes.size();
  }
  return t;
}

}  // namespace coil::cache
