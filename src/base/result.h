// Errors as values. What the outside can cause is a Result; our own bugs are CHECKs, which throw InternalError and are
// caught only at the borders (C API, command line, Python).
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace coil {

// The numbers behind COIL-Exxx; see error_codes.def.
enum class ErrorCode : int {
#define X(number, name, exit_code, text) name = number,
#include "base/error_codes.def"
#undef X
};

// A user error. `message` says what is wrong with what was found and expected; `where` is the model's source line or the
// file at fault, possibly empty; `hint` is one next step, possibly empty.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string where;
  std::string hint;
  // For programs that read errors: the node or value at fault, by the name that the program has for it ("add_3"). Not in the text.
  std::string node = {};

  // "COIL-E012: message\n  at where\n  hint: hint"
  std::string to_string() const;
  // Puts "context: " before the message.
  Error with_context(std::string_view context) &&;
};

std::string error_name(ErrorCode code);  // "COIL-E012"
int exit_code(ErrorCode code);           // the command's exit code

struct Unit {};

// Either a T or an Error. Not default-constructible; check ok() before value().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T value() && { return std::get<0>(std::move(state_)); }  // by value: safe in `for (x : f().value())`
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<Unit>;
inline Status ok_status() { return Unit{}; }

// A bug in coil: never caused by input. Carries file:line and the failed condition.
class InternalError : public std::exception {
 public:
  InternalError(const char* file, int line, std::string text);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view detail);

}  // namespace coil

// CHECK(condition) or CHECK(condition, "detail").
#define CHECK(condition, ...) ((condition) ? void(0) : ::coil::check_failed(__FILE__, __LINE__, #condition, ::std::string_view{__VA_ARGS__}))

#define COIL_CONCAT_(a, b) a##b
#define COIL_CONCAT(a, b) COIL_CONCAT_(a, b)

// TRY(auto x, expression): declares x from an ok Result, or returns the Error from the enclosing function.
#define TRY(declaration, ...) COIL_TRY_(COIL_CONCAT(coil_try_, __COUNTER__), declaration, __VA_ARGS__)
#define COIL_TRY_(tmp, declaration, ...)        \
  auto tmp = (__VA_ARGS__);                     \
  if (!tmp.ok()) return std::move(tmp).error(); \
  declaration = std::move(tmp).value()

// TRY_STATUS(expression): the same for a Status or a Result whose value is not needed.
#define TRY_STATUS(...)                                                                             \
  do {                                                                                              \
    if (auto coil_status = (__VA_ARGS__); !coil_status.ok()) return std::move(coil_status).error(); \
  } while (0)
