// coil's errors as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/without_memory.h"
#include "base/result.h"

namespace coil::python {

// Leaves C++ as the exception that coil._errors makes of the code and the text.
struct PythonError {
  Error error;
  // Of a call: which of its inputs is at fault (-1: none in particular), and the strides that the program expects where those are.
  int input = -1;
  std::vector<int64_t> expected_strides = {};
};

template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw PythonError{std::move(result).error()};
  return std::move(result).value();
}
inline void throw_if(const Status& status) {
  if (!status.ok()) throw PythonError{status.error()};
}

// Names of files in it may be any bytes.
inline nanobind::object text_of(const std::string& text) {
  PyObject* made = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (!made) throw nanobind::python_error();
  return nanobind::steal(made);
}

// The exception itself, for callers that collect several.
inline nanobind::object exception_of(const Error& error, int input = -1, const std::vector<int64_t>& expected_strides = {}) {
  return nanobind::module_::import_("coil._errors")
      .attr("make_error")(static_cast<int>(error.code), text_of(error.to_string()), text_of(error.message), text_of(error.node), input, expected_strides);
}

// Once in each module.
inline void translate_errors() {
  nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    const auto raise = [](const PythonError& raised) {
      try {
        const nanobind::object made = exception_of(raised.error, raised.input, raised.expected_strides);
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
      } catch (nanobind::python_error& broken) {
        broken.restore();
      }
    };
    try {
      std::rethrow_exception(pointer);
    } catch (const PythonError& e) {
      raise(e);
    } catch (const std::bad_alloc&) {
      raise({no_memory()});
    } catch (const InternalError& e) {
      raise({Error{ErrorCode::internal, e.what(), "", "please report it, with the program"}});
    }
  });
}

}  // namespace coil::python
