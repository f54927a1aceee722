// A reference to something callable, for parameters that are called and not kept: no allocation, no copy, and less code at each call than
// std::function, which is for what outlives the call.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace coil {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  FunctionRef() = default;        // of nothing: false
  FunctionRef(std::nullptr_t) {}  // NOLINT: likewise

  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& f)  // NOLINT: a lambda stands where it is passed, or a function: only this cast takes a pointer to either, const or not
      : callee_((void*)std::addressof(f)), call_(&call_it<std::remove_reference_t<F>>) {
    if constexpr (std::is_same_v<std::remove_cvref_t<F>, std::function<R(Args...)>>) {
      if (!f) call_ = nullptr;
    }
  }

  R operator()(Args... args) const { return call_(callee_, std::forward<Args>(args)...); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  template <class F>
  static R call_it(void* callee, Args... args) {
    return (*reinterpret_cast<F*>(callee))(std::forward<Args>(args)...);
  }

  void* callee_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

}  // namespace coil
