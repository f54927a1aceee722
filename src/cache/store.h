// Where entries lie: names to bytes. Names are of letters, digits, '-', '.' and '/'.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace coil::cache {

using Bytes = std::vector<uint8_t>;

inline constexpr uint64_t kMostEntryBytes = uint64_t{64} << 20;  // checked before anything is read
inline constexpr size_t kMostEntries = 1'000'000;

// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  virtual std::string place() const = 0;
  virtual Result<std::optional<Bytes>> get(const std::string& name) = 0;
  virtual Status put(const std::string& name, std::span<const uint8_t> bytes) = 0;  // replaces
  virtual Status remove(const std::string& name) = 0;                               // absent: nothing happens
  virtual Result<std::vector<std::string>> list(const std::string& prefix) = 0;     // in order
};

// Whether others than this user may have written what is there.
enum class Trust {
  own,     // nobody else may: a folder, an entry, or a folder above that others can write to or own is refused
  shared,  // the user says that whoever can write there is trusted, or the entries carry authentication codes
};

// bad_option from every call while the folder is not to be trusted; so is an entry that others can write, in get.
std::unique_ptr<Store> folder_store(const std::string& folder, Trust trust);
// "redis://[[user]:password@]host[:port][/database]", or rediss:// for TLS. Connects at the first use; after a failure it is left alone for the
// life of the object. bad_option.
Result<std::unique_ptr<Store>> redis_store(const std::string& address);

}  // namespace coil::cache
