// What the handles of include/coil are, and how their functions fail: errors become numbers and texts, and no exception passes.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "coil/coil.h"
#include "runtime/context.h"
#include "runtime/last_error.h"
#include "runtime/model.h"
#include "runtime/profile.h"

struct coil_model {
  std::shared_ptr<coil::runtime::Model> model;
  std::vector<std::vector<coil_dim>> input_dims;
  std::vector<std::vector<coil_dim>> output_dims;
};

struct coil_context {
  coil::runtime::Context context;
};

struct coil_state {
  std::shared_ptr<const coil::runtime::Model> model;  // outlives the state
  std::shared_ptr<coil::runtime::State> state;
};

struct coil_profile {
  std::shared_ptr<coil::runtime::Model> model;  // null: all
  std::shared_ptr<coil::runtime::Profile> profile;
  std::string table;
};

namespace coil::runtime {

inline coil_status fail(const Error& error) noexcept { return keep_error(error); }
[[gnu::noinline, gnu::cold]] inline coil_status fail_call(const CoilError& error) noexcept {
  return keep_error(static_cast<ErrorCode>(error.code), error.message);
}
// In a catch block. Needs no memory.
inline coil_status fail_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return keep_error(ErrorCode::out_of_memory, "no memory");
  } catch (const std::exception& exception) {
    return keep_error(ErrorCode::internal, exception.what());
  } catch (...) {
    return keep_error(ErrorCode::internal, "unknown exception");
  }
}

inline coil_status fail_null(const char* what) noexcept {
  char text[64];
  std::snprintf(text, sizeof text, "%s is null", what);
  return keep_error(ErrorCode::bad_option, text);
}

// To memory of the caller's, which has room for *size; null: only how many there are.
inline coil_status give_bytes(const std::vector<uint8_t>& bytes, void* to, size_t* size) {
  const size_t room = *size;
  *size = bytes.size();
  if (!to) return COIL_OK;
  if (room < bytes.size())
    return fail(Error{ErrorCode::bad_option, "there are " + std::to_string(bytes.size()) + " bytes, and room for " + std::to_string(room), "", ""});
  std::memcpy(to, bytes.data(), bytes.size());
  return COIL_OK;
}

}  // namespace coil::runtime
