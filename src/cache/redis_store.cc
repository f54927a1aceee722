// Entries as keys of a Redis server, shared by machines.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "cache/redis_reply.h"
#include "cache/store.h"

namespace coil::cache {
namespace {

constexpr std::string_view kPrefix = "coil:";
constexpr ReplyLimits kShort = {1 << 16, 64}, kEntry = {kMostEntryBytes, 0}, kNames = {uint64_t{16} << 20, 100'000};
constexpr int kMostScans = 1'000'000;

struct Address {
  Endpoint endpoint;
  int database = 0;
  std::string user, password;
};

// As store.h has names: whatever the server says, nothing else becomes one.
bool is_name(std::string_view text) {
  const auto known = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '/'; };
  return !text.empty() && text.size() < 512 && text[0] != '/' && text.find("..") == std::string_view::npos && std::all_of(text.begin(), text.end(), known);
}

class RedisStore : public Store {
 public:
  explicit RedisStore(Address address) : address_(std::move(address)) {}
  std::string place() const override {
    const auto& [host, port, tls] = address_.endpoint;
    return fmt::format("{}://{}:{}/{}", tls ? "rediss" : "redis", host.find(':') == std::string::npos ? host : "[" + host + "]", port, address_.database);
  }

  Result<std::optional<Bytes>> get(const std::string& name) override {
    TRY(Reply r, command({bytes_of("GET"), bytes_of(std::string(kPrefix) + name)}, kEntry));
    if (r.kind == Reply::Kind::nil) return std::optional<Bytes>();
    if (r.kind != Reply::Kind::bytes) return unexpected("GET");
    return std::optional<Bytes>(std::move(r.bytes));
  }

  Status put(const std::string& name, std::span<const uint8_t> bytes) override {
    TRY_STATUS(command({bytes_of("SET"), bytes_of(std::string(kPrefix) + name), bytes}, kShort));
    return ok_status();
  }

  Status remove(const std::string& name) override {
    TRY_STATUS(command({bytes_of("DEL"), bytes_of(std::string(kPrefix) + name)}, kShort));
    return ok_status();
  }

  Result<std::vector<std::string>> list(const std::string& prefix) override {
    std::vector<std::string> names;
    std::string cursor = "0";
    const std::string pattern = std::string(kPrefix) + prefix + "*";
    for (int scans = 0; scans == 0 || cursor != "0"; ++scans) {
      TRY(const Reply r, command({bytes_of("SCAN"), bytes_of(cursor), bytes_of("MATCH"), bytes_of(pattern), bytes_of("COUNT"), bytes_of("1000")}, kNames));
      if (r.kind != Reply::Kind::list || r.items.size() != 2 || r.items[0].kind != Reply::Kind::bytes || scans == kMostScans) return unexpected("SCAN");
      cursor = r.items[0].text();
      for (const Reply& item : r.items[1].items) {
        const std::string_view name = item.text();
        if (name.starts_with(kPrefix) && is_name(name.substr(kPrefix.size()))) names.emplace_back(name.substr(kPrefix.size()));
      }
      if (names.size() > kMostEntries) return unexpected("SCAN");
    }
    // A scan may give a key twice.
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

 private:
  Error unexpected(const char* what) const {
    return Error{ErrorCode::file_unreadable, fmt::format("{}: the server's answer to {} is none that is expected", place(), what), "", ""};
  }

  Error failed(const std::string& why) {
    broken_ = fmt::format("{}: {}", place(), why);
    reader_.reset();
    connection_.reset();
    return Error{ErrorCode::file_unreadable, broken_, "", "start the server, or set COIL_CACHE to a folder or off"};
  }

  Result<Reply> ask(std::initializer_list<std::span<const uint8_t>> parts, const ReplyLimits& limits) {
    connection_->begin();
    if (const Status sent = connection_->send(redis_command(parts)); !sent.ok()) return failed(sent.error().message);
    Result<Reply> reply = reader_->read(limits);
    if (!reply.ok()) return failed(reply.error().message);
    connection_->end();
    if (reply.value().kind == Reply::Kind::error) return failed(std::string(reply.value().text()));
    return reply;
  }

  Status connect() {
    connection_ = std::make_unique<Connection>();
    connection_->begin();
    if (const Status opened = connection_->open(address_.endpoint); !opened.ok()) return failed(opened.error().message);
    connection_->end();
    reader_ = std::make_unique<ReplyReader>(*connection_);
    if (!address_.user.empty()) TRY_STATUS(ask({bytes_of("AUTH"), bytes_of(address_.user), bytes_of(address_.password)}, kShort));
    else if (!address_.password.empty()) TRY_STATUS(ask({bytes_of("AUTH"), bytes_of(address_.password)}, kShort));
    if (address_.database != 0) TRY_STATUS(ask({bytes_of("SELECT"), bytes_of(std::to_string(address_.database))}, kShort));
    return ok_status();
  }

  Result<Reply> command(std::initializer_list<std::span<const uint8_t>> parts, const ReplyLimits& limits) {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return Error{ErrorCode::file_unreadable, broken_, "", ""};
    if (!connection_) TRY_STATUS(connect());
    return ask(parts, limits);
  }

  const Address address_;
  std::mutex mutex_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<ReplyReader> reader_;
  std::string broken_;
};

bool number(std::string_view text, int low, int high, int& out) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  return problem == std::errc() && end == text.data() + text.size() && out >= low && out <= high;
}

// "%40" is '@'.
std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size() || std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr != text.data() + i + 3) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

bool read_login(std::string_view login, Address& a) {
  const size_t colon = login.find(':');
  if (colon == std::string_view::npos) return false;
  const std::optional<std::string> user = unescaped(login.substr(0, colon)), password = unescaped(login.substr(colon + 1));
  if (!user || !password || password->empty()) return false;
  a.user = *user;
  a.password = *password;
  return true;
}

bool read_host(std::string_view text, Endpoint& endpoint) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return false;
    endpoint.host = text.substr(1, end - 1);
    text = text.substr(end + 1);
    return !endpoint.host.empty() && (text.empty() || (text[0] == ':' && number(text.substr(1), 1, 65535, endpoint.port)));
  }
  const size_t colon = text.rfind(':');
  endpoint.host = text.substr(0, colon);
  return !endpoint.host.empty() && (colon == std::string_view::npos || number(text.substr(colon + 1), 1, 65535, endpoint.port));
}

}  // namespace

Result<std::unique_ptr<Store>> redis_store(const std::string& text) {
  Address a;
  a.endpoint.port = 6379;
  a.endpoint.tls = text.starts_with("rediss://");
  std::string_view rest = std::string_view(text).substr(a.endpoint.tls ? 9 : 8);
  bool good = true;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    good = read_login(rest.substr(0, at), a);
    rest = rest.substr(at + 1);
  }
  const std::string_view named = rest;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    good = good && (slash + 1 == rest.size() || number(rest.substr(slash + 1), 0, 1 << 20, a.database));
    rest = rest.substr(0, slash);
  }
  good = read_host(rest, a.endpoint) && good;
  if (!good) {  // without what may be a password
    return Error{
        ErrorCode::bad_option,
        fmt::format("'{}://{}{}' is no address of a Redis server", a.endpoint.tls ? "rediss" : "redis", named.size() < text.size() - 9 ? "...@" : "", named),
        "", "write it as redis://host:port, redis://user:password@host:port/database, or rediss:// for TLS"};
  }
  return std::unique_ptr<Store>(std::make_unique<RedisStore>(std::move(a)));
}

}  // namespace coil::cache
