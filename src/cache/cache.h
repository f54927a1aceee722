// Results that are worth keeping between processes: objects of compiled kernels, choices of the tuner. Content-addressed: a key says
// everything that a result depends on, so an entry is right or absent, never out of date.
//
// Entries check themselves: what is cut off, overwritten or of another key counts as absent. Any number of processes may use one place;
// nothing is locked, an entry appears whole or not at all. No failure of a cache is an error of a compile.
//
// Entries are code that later compiles run and put into packages. So a place has to be its user's own (trust.h), or the user says that it is
// shared; and with a key (secret.h) only entries that carry the key's code count.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/zip_reader.h"
#include "cache/secret.h"
#include "cache/store.h"

namespace coil::cache {

struct Field {
  std::string name, value;
  bool operator==(const Field&) const = default;
};

// kind: "object", "tuning". subject: what it is of; entries of one subject are compared to explain a miss. fields: all else that it
// depends on. Short texts: hash long ones.
struct Key {
  std::string kind, subject;
  std::vector<Field> fields;
  bool operator==(const Key&) const = default;
  std::string folder() const;  // of its subject: "object/0123456789abcdef/"
  std::string name() const;    // of the entry
};

struct Lookup {
  Key key;
  bool hit = false;
};

struct Totals {
  uint64_t entries = 0, bytes = 0;
};

// Thread-safe.
class Cache {
 public:
  // place: a folder (made when something is kept), or a Redis server (store.h); behind "shared:" when others may write there and are trusted.
  // bad_option for a malformed one. A server is others' by nature: without "shared:" it is used with a key only.
  static Result<std::shared_ptr<Cache>> open(const std::string& place, std::optional<Secret> key = std::nullopt);
  // COIL_CACHE, with COIL_CACHE_KEY: null when it is "off"; its default is a folder of the user's. Null as well where there is no home.
  static Result<std::shared_ptr<Cache>> from_env();
  explicit Cache(std::unique_ptr<Store> store, std::optional<Secret> key = std::nullopt) : store_(std::move(store)), key_(std::move(key)) {}

  std::optional<Bytes> get(const Key& key);
  void put(const Key& key, std::span<const uint8_t> payload);

  // Why a key has no entry: the fields in which the nearest entry of its subject differs.
  std::string explain(const Key& key);
  std::vector<Lookup> lookups() const;  // of this object, in order
  std::string problem() const;          // the last failure of the place, in words; empty: none
  std::string distrust() const;         // why the place, or entries of it, were not trusted; empty: they were
  bool has_key() const { return key_.has_value(); }
  void read_only() { read_only_ = true; }
  std::string place() const { return store_->place(); }

  // --- upkeep. file_unreadable, file_unwritable: the place does not answer.
  Result<Totals> totals();
  Result<Totals> clear();
  Result<Totals> pack(const std::string& path);  // all good entries into a zip
  // Of what pack wrote; bad_archive when it holds anything else. An archive from elsewhere is as good as the code that it holds: its entries have to
  // carry the code of this cache's key, unless the user trusts the file. bad_option without either.
  Result<Totals> unpack(const ZipReader& zip, bool trusted);

 private:
  void note(const Error& error);
  std::unique_ptr<Store> store_;
  const std::optional<Secret> key_;
  mutable std::mutex mutex_;
  std::vector<Lookup> lookups_;
  std::string problem_, distrust_;
  uint64_t unsigned_ = 0;  // entries without the key's code
  bool read_only_ = false;
};

}  // namespace coil::cache
