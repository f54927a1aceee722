// A connection to a server by TCP, or by TLS over it, that waits for a bounded time in all: each exchange may take what a healthy server takes,
// and what it takes beyond that is counted. When the count is used up (a server that hangs, or trickles a byte a second) every call fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace coil::cache {

// Bytes as they come; so that replies can be read from elsewhere than a server as well.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At least one byte, and how many; file_unreadable when there are none.
  virtual Result<size_t> receive(std::span<uint8_t> into) = 0;
};

struct Endpoint {
  std::string host;
  int port = 0;
  bool tls = false;  // the certificate has to be the host's: by the system's authorities, or those of SSL_CERT_FILE
};

inline constexpr std::chrono::milliseconds kPatience{3000};

class Connection : public ByteSource {
 public:
  explicit Connection(std::chrono::milliseconds patience = kPatience);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // An exchange: one question and its answer lie between them.
  void begin();
  void end();
  Status open(const Endpoint& endpoint);
  Status send(std::span<const uint8_t> bytes);
  Result<size_t> receive(std::span<uint8_t> into) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Tls;
  Clock::time_point deadline() const;
  Status wait(short events);  // for the socket
  Status send_plain(std::span<const uint8_t> bytes);
  Result<size_t> receive_plain(std::span<uint8_t> into);
  Status open_tls(const std::string& host);
  Status flush_tls();
  Status feed_tls();

  int socket_ = -1;
  std::unique_ptr<Tls> tls_;
  std::chrono::nanoseconds patience_;
  Clock::time_point began_{};
  uint64_t moved_ = 0;  // bytes of this exchange
};

}  // namespace coil::cache
