#include "cache/connection.h"

#include <fmt/format.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

namespace coil::cache {
namespace {

// What a healthy server may take, uncounted: a round trip around the world, and a line of 32 Mbit/s.
constexpr std::chrono::milliseconds kRoundTrip{100};
constexpr uint64_t kBytesPerMillisecond = 4000;

Error failed(std::string why) { return {ErrorCode::file_unreadable, std::move(why), "", ""}; }

struct Addresses {
  std::mutex mutex;
  std::condition_variable done;
  bool ready = false;
  int problem = 0;
  addrinfo* list = nullptr;
  ~Addresses() {
    if (list != nullptr) ::freeaddrinfo(list);
  }
};

void look_up(const std::shared_ptr<Addresses>& into, const Endpoint& endpoint) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int problem = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  const std::lock_guard lock(into->mutex);
  into->problem = problem;
  into->list = list;
  into->ready = true;
  into->done.notify_all();
}

// The system's resolver knows no bound of time: a thread asks it, and is left behind when it does not come back.
Result<std::shared_ptr<Addresses>> resolve(const Endpoint& endpoint, std::chrono::steady_clock::time_point deadline) {
  auto found = std::make_shared<Addresses>();
  try {
    std::thread(look_up, found, endpoint).detach();
  } catch (const std::system_error&) {
    look_up(found, endpoint);
  }
  std::unique_lock lock(found->mutex);
  if (!found->done.wait_until(lock, deadline, [&] { return found->ready; })) return failed("its name was not found in time");
  if (found->problem != 0) return failed(fmt::format("its address is not known: {}", ::gai_strerror(found->problem)));
  return found;
}

std::string tls_problem() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "the connection ended";
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

// The authorities of the system, wherever it keeps them (the library's own path is Debian's).
bool load_authorities(SSL_CTX* context) {
  if (std::getenv("SSL_CERT_FILE") != nullptr || std::getenv("SSL_CERT_DIR") != nullptr) return SSL_CTX_set_default_verify_paths(context) == 1;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (::access(file, R_OK) == 0) return SSL_CTX_load_verify_locations(context, file, nullptr) == 1;
  }
  return SSL_CTX_set_default_verify_paths(context) == 1;
}

}  // namespace

// TLS works on memory; the socket's bytes are moved here, where waiting is bounded and no signal comes (SIGPIPE).
struct Connection::Tls {
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  BIO *in = nullptr, *out = nullptr;  // owned by ssl
  ~Tls() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
};

Connection::Connection(std::chrono::milliseconds patience) : patience_(patience) {}

Connection::~Connection() {
  if (socket_ >= 0) ::close(socket_);
}

void Connection::begin() {
  began_ = Clock::now();
  moved_ = 0;
}

void Connection::end() {
  const auto late = Clock::now() - (deadline() - std::chrono::duration_cast<Clock::duration>(patience_));
  if (late.count() > 0) patience_ -= late;
}

Connection::Clock::time_point Connection::deadline() const {
  return began_ + kRoundTrip + std::chrono::milliseconds(moved_ / kBytesPerMillisecond) + std::chrono::duration_cast<Clock::duration>(patience_);
}

Status Connection::wait(short events) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline() - Clock::now()).count();
    if (left <= 0) return failed(fmt::format("no answer in time: {} s of waiting are all that a compile has for it", kPatience.count() / 1000));
    pollfd poll{socket_, events, 0};
    const int n = ::poll(&poll, 1, static_cast<int>(left) + 1);
    if (n > 0) return ok_status();
    if (n < 0 && errno != EINTR) return failed(std::strerror(errno));
  }
}

Status Connection::open(const Endpoint& endpoint) {
  TRY(const std::shared_ptr<Addresses> addresses, resolve(endpoint, deadline()));
  std::string problem = "it has no address";
  for (const addrinfo* a = addresses->list; a != nullptr && socket_ < 0; a = a->ai_next) {
    socket_ = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (socket_ < 0) return failed(std::strerror(errno));
    int error = ::connect(socket_, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      TRY_STATUS(wait(POLLOUT));
      socklen_t size = sizeof error;
      if (::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    }
    if (error == 0) break;
    problem = std::strerror(error);
    ::close(socket_);
    socket_ = -1;
  }
  if (socket_ < 0) return failed(problem);
  return endpoint.tls ? open_tls(endpoint.host) : ok_status();
}

Status Connection::send_plain(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
      moved_ += static_cast<uint64_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      TRY_STATUS(wait(POLLOUT));
    } else if (errno != EINTR) {
      return failed(std::strerror(errno));
    }
  }
  return ok_status();
}

Result<size_t> Connection::receive_plain(std::span<uint8_t> into) {
  while (true) {
    // Asked first: a server whose bytes come just in time each is late all the same.
    TRY_STATUS(wait(POLLIN));
    const ssize_t n = ::recv(socket_, into.data(), into.size(), 0);
    if (n > 0) {
      moved_ += static_cast<uint64_t>(n);
      return static_cast<size_t>(n);
    }
    if (n == 0) return failed("the server ended the connection");
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return failed(std::strerror(errno));
  }
}

Status Connection::open_tls(const std::string& host) {
  // No configuration of the process's environment: it may name code to load.
  if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) return failed("TLS: " + tls_problem());
  tls_ = std::make_unique<Tls>();
  tls_->context = SSL_CTX_new(TLS_client_method());
  if (tls_->context == nullptr || SSL_CTX_set_min_proto_version(tls_->context, TLS1_2_VERSION) != 1 || !load_authorities(tls_->context))
    return failed("TLS: " + tls_problem());
  SSL_CTX_set_verify(tls_->context, SSL_VERIFY_PEER, nullptr);
  tls_->ssl = SSL_new(tls_->context);
  tls_->in = BIO_new(BIO_s_mem());
  tls_->out = BIO_new(BIO_s_mem());
  if (tls_->ssl == nullptr || tls_->in == nullptr || tls_->out == nullptr) return failed("TLS: " + tls_problem());
  SSL_set_bio(tls_->ssl, tls_->in, tls_->out);
  SSL_set_connect_state(tls_->ssl);
  X509_VERIFY_PARAM* wanted = SSL_get0_param(tls_->ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) {
    ERR_clear_error();
    if (SSL_set1_host(tls_->ssl, host.c_str()) != 1 || SSL_set_tlsext_host_name(tls_->ssl, host.c_str()) != 1) return failed("TLS: " + tls_problem());
  }
  while (true) {
    const int n = SSL_do_handshake(tls_->ssl);
    const int error = n == 1 ? SSL_ERROR_NONE : SSL_get_error(tls_->ssl, n);
    TRY_STATUS(flush_tls());
    if (n == 1) return ok_status();
    if (const long verdict = SSL_get_verify_result(tls_->ssl); error != SSL_ERROR_WANT_READ && verdict != X509_V_OK) {
      return failed(fmt::format("its certificate is not trusted: {} (SSL_CERT_FILE names a file of authorities)", X509_verify_cert_error_string(verdict)));
    }
    if (error != SSL_ERROR_WANT_READ) return failed("TLS: " + tls_problem());
    TRY_STATUS(feed_tls());
  }
}

Status Connection::flush_tls() {
  std::array<uint8_t, 1 << 14> piece;
  for (int n; (n = BIO_read(tls_->out, piece.data(), static_cast<int>(piece.size()))) > 0;) {
    TRY_STATUS(send_plain(std::span(piece).first(static_cast<size_t>(n))));
  }
  return ok_status();
}

Status Connection::feed_tls() {
  std::array<uint8_t, 1 << 14> piece;
  TRY(const size_t n, receive_plain(piece));
  if (BIO_write(tls_->in, piece.data(), static_cast<int>(n)) != static_cast<int>(n)) return failed("TLS: " + tls_problem());
  return ok_status();
}

Status Connection::send(std::span<const uint8_t> bytes) {
  if (!tls_) return send_plain(bytes);
  while (!bytes.empty()) {
    const std::span<const uint8_t> piece = bytes.first(std::min<size_t>(bytes.size(), 1 << 14));
    const int n = SSL_write(tls_->ssl, piece.data(), static_cast<int>(piece.size()));
    const int error = n > 0 ? SSL_ERROR_NONE : SSL_get_error(tls_->ssl, n);
    TRY_STATUS(flush_tls());
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
    else if (error == SSL_ERROR_WANT_READ) TRY_STATUS(feed_tls());
    else return failed("TLS: " + tls_problem());
  }
  return ok_status();
}

Result<size_t> Connection::receive(std::span<uint8_t> into) {
  if (!tls_) return receive_plain(into);
  while (true) {
    const int n = SSL_read(tls_->ssl, into.data(), static_cast<int>(std::min<size_t>(into.size(), 1 << 20)));
    if (n > 0) return static_cast<size_t>(n);
    const int error = SSL_get_error(tls_->ssl, n);
    TRY_STATUS(flush_tls());
    if (error != SSL_ERROR_WANT_READ) return failed("TLS: " + tls_problem());
    TRY_STATUS(feed_tls());
  }
}

}  // namespace coil::cache
