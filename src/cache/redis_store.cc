// Entries as keys of a Redis server, shared by machines. hiredis is the Redis project's own client for C.
#include <hiredis/hiredis.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include <fmt/format.h>

#include "cache/store.h"

namespace coil::cache {
namespace {

constexpr timeval kConnect = {0, 500'000}, kCommand = {2, 0};
constexpr std::string_view kPrefix = "coil:";

struct FreeReply {
  void operator()(redisReply* r) const { freeReplyObject(r); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

struct Address {
  std::string host;
  int port = 6379, database = 0;
};

class RedisStore : public Store {
 public:
  explicit RedisStore(Address address) : address_(std::move(address)) {}
  ~RedisStore() override {
    if (connection_) redisFree(connection_);
  }
  std::string place() const override { return fmt::format("redis://{}:{}/{}", address_.host, address_.port, address_.database); }

  Result<std::optional<Bytes>> get(const std::string& name) override {
    TRY(const Reply r, command({"GET", std::string(kPrefix) + name}));
    if (r->type == REDIS_REPLY_NIL) return std::optional<Bytes>();
    if (r->type != REDIS_REPLY_STRING) return unexpected("GET");
    return std::optional<Bytes>(Bytes(r->str, r->str + r->len));
  }

  Status put(const std::string& name, std::span<const uint8_t> bytes) override {
    TRY_STATUS(command({"SET", std::string(kPrefix) + name, std::string(bytes.begin(), bytes.end())}));
    return ok_status();
  }

  Status remove(const std::string& name) override {
    TRY_STATUS(command({"DEL", std::string(kPrefix) + name}));
    return ok_status();
  }

  Result<std::vector<std::string>> list(const std::string& prefix) override {
    std::vector<std::string> names;
    std::string cursor = "0";
    do {
      TRY(const Reply r, command({"SCAN", cursor, "MATCH", std::string(kPrefix) + prefix + "*", "COUNT", "1000"}));
      if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 || r->element[1]->type != REDIS_REPLY_ARRAY) return unexpected("SCAN");
      cursor = std::string(r->element[0]->str, r->element[0]->len);
      for (size_t i = 0; i < r->element[1]->elements; ++i) {
        const redisReply* e = r->element[1]->element[i];
        const std::string_view name = e->type == REDIS_REPLY_STRING ? std::string_view(e->str, e->len) : "";
        if (name.starts_with(kPrefix)) names.emplace_back(name.substr(kPrefix.size()));
      }
    } while (cursor != "0");
    // A scan may give a key twice.
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

 private:
  Error unexpected(const char* what) const { return Error{ErrorCode::file_unreadable, fmt::format("{}: the server's answer to {} is none that is expected", place(), what), "", ""}; }

  Error failed(const std::string& why) {
    broken_ = fmt::format("{}: {}", place(), why);
    if (connection_) redisFree(connection_);
    connection_ = nullptr;
    return Error{ErrorCode::file_unreadable, broken_, "", "start the server, or set COIL_CACHE to a folder or off"};
  }

  Status send(std::initializer_list<std::string> parts, Reply* out) {
    if (!broken_.empty()) return Error{ErrorCode::file_unreadable, broken_, "", ""};
    std::vector<const char*> data;
    std::vector<size_t> sizes;
    for (const std::string& p : parts) {
      data.push_back(p.data());
      sizes.push_back(p.size());
    }
    out->reset(static_cast<redisReply*>(redisCommandArgv(connection_, static_cast<int>(data.size()), data.data(), sizes.data())));
    if (!*out) return failed(connection_->errstr);
    if ((*out)->type == REDIS_REPLY_ERROR) return failed(std::string((*out)->str, (*out)->len));
    return ok_status();
  }

  Status connect() {
    if (connection_ || !broken_.empty()) return ok_status();
    connection_ = redisConnectWithTimeout(address_.host.c_str(), address_.port, kConnect);
    if (!connection_) return failed("out of memory");
    if (connection_->err) return failed(connection_->errstr);
    redisSetTimeout(connection_, kCommand);
    Reply ignored;
    return address_.database == 0 ? ok_status() : send({"SELECT", std::to_string(address_.database)}, &ignored);
  }

  Result<Reply> command(std::initializer_list<std::string> parts) {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(connect());
    Reply reply;
    TRY_STATUS(send(parts, &reply));
    return reply;
  }

  const Address address_;
  std::mutex mutex_;
  redisContext* connection_ = nullptr;
  std::string broken_;
};

bool number(std::string_view text, int low, int high, int& out) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  return problem == std::errc() && end == text.data() + text.size() && out >= low && out <= high;
}

}  // namespace

Result<std::unique_ptr<Store>> redis_store(const std::string& text) {
  Address a;
  std::string_view rest = text;
  bool good = true;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    good = slash + 1 == rest.size() || number(rest.substr(slash + 1), 0, 1 << 20, a.database);
    rest = rest.substr(0, slash);
  }
  if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    good = good && number(rest.substr(colon + 1), 1, 65535, a.port);
    rest = rest.substr(0, colon);
  }
  a.host = rest;
  if (!good || a.host.empty()) return Error{ErrorCode::bad_option, fmt::format("'redis://{}' is no address of a Redis server", text), "", "write it as redis://host:port or redis://host:port/database"};
  return std::unique_ptr<Store>(std::make_unique<RedisStore>(std::move(a)));
}

}  // namespace coil::cache
