// The profiles of include/coil/coil.h.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "base/files.h"
#include "coil/coil.h"
#include "runtime/c_handles.h"
#include "runtime/profile.h"

using coil::Error;
using coil::ErrorCode;
using coil::runtime::fail;
using coil::runtime::fail_exception;
using coil::runtime::fail_null;

extern "C" {

coil_status coil_profile_begin(coil_model* model, const coil_profile_options* options, coil_profile** profile) try {
  if (!profile) return fail_null("the place for the profile");
  *profile = nullptr;
  coil_profile_options known = {};
  if (options) {
    if (options->struct_bytes < sizeof options->struct_bytes)
      return fail(Error{ErrorCode::bad_option, "coil_profile_options.struct_bytes is not set", "", "set it to sizeof(coil_profile_options)"});
    std::memcpy(&known, options, std::min<size_t>(options->struct_bytes, sizeof known));
  }
  if (known.calls < 0)
    return fail(Error{ErrorCode::bad_option, "coil_profile_options.calls is " + std::to_string(known.calls) + ", expected 0 (until the end) or more"});
  auto made = std::make_unique<coil_profile>();
  if (model) made->model = model->model;
  made->profile = coil::runtime::Profile::start(made->model.get(), {known.calls, known.counters != 0, known.all_calls != 0});
  *profile = made.release();
  return COIL_OK;
} catch (...) {
  return fail_exception();
}

coil_status coil_profile_end(coil_profile* profile) {
  if (!profile) return fail_null("the profile");
  profile->profile->stop();
  return COIL_OK;
}

int64_t coil_profile_calls(const coil_profile* profile) try { return profile ? static_cast<int64_t>(profile->profile->calls().size()) : 0; } catch (...) {
  return 0;
}

coil_status coil_profile_write(coil_profile* profile, const char* path) try {
  if (!profile || !path) return fail_null(profile ? "the path" : "the profile");
  const std::string text = profile->profile->trace_json();
  const coil::Status status = coil::write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return status.ok() ? COIL_OK : fail(status.error());
} catch (...) {
  return fail_exception();
}

const char* coil_profile_table(coil_profile* profile) try {
  if (!profile) return "";
  profile->table = profile->profile->table_json();
  return profile->table.c_str();
} catch (...) {
  return "";
}

void coil_profile_free(coil_profile* profile) { delete profile; }

}  // extern "C"
