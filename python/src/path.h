// Files' names: Python's text with surrogate escapes, which are bytes again here, whatever they are.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace coil::python {

struct Path {
  std::string name;
};

}  // namespace coil::python

namespace nanobind::detail {

template <>
struct type_caster<coil::python::Path> {
  NB_TYPE_CASTER(coil::python::Path, const_name("str"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    PyObject* bytes = nullptr;
    if (!PyUnicode_FSConverter(source.ptr(), &bytes)) {
      PyErr_Clear();
      return false;
    }
    try {
      value.name.assign(PyBytes_AsString(bytes), static_cast<size_t>(PyBytes_Size(bytes)));
    } catch (...) {  // no memory
      Py_DECREF(bytes);
      return false;
    }
    Py_DECREF(bytes);
    return true;
  }

  static handle from_cpp(const coil::python::Path& path, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeFSDefaultAndSize(path.name.data(), static_cast<Py_ssize_t>(path.name.size()));
  }
};

}  // namespace nanobind::detail
