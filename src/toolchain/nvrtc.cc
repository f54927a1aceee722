#include "toolchain/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/env.h"
#include "base/parallel.h"
#include "toolchain/embedded.h"

namespace coil::toolchain {

using Program = void*;

struct Nvrtc::Functions {
  const char* (*error_string)(int);
  int (*version)(int*, int*);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts, const char* const* names);
  int (*destroy)(Program*);
  int (*compile)(Program, int count, const char* const* options);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
};

namespace {

const char* const kNames[] = {"libnvrtc.so.13",
                              "libnvrtc.so.12",
                              "libnvrtc.so",
                              "/usr/local/cuda/lib64/libnvrtc.so.13",
                              "/usr/local/cuda/lib64/libnvrtc.so.12",
                              "/usr/local/cuda/lib64/libnvrtc.so"};

struct Headers {
  std::vector<std::string> texts, names;
  std::vector<const char*> text_pointers, name_pointers;
};

const Headers& device_headers() {
  static const Headers headers = [] {
    Headers h;
    for (const EmbeddedFile& f : embedded_files()) {
      const bool known = f.path.starts_with("device/cuda/") || f.path.starts_with("device/user/");
      if (!known || !f.path.ends_with(".h")) continue;
      h.names.emplace_back(f.path.substr(7));  // "cuda/base.h"
      h.texts.emplace_back(f.text());
    }
    for (size_t i = 0; i < h.names.size(); ++i) {
      h.text_pointers.push_back(h.texts[i].c_str());
      h.name_pointers.push_back(h.names[i].c_str());
    }
    return h;
  }();
  return headers;
}

}  // namespace

Nvrtc::~Nvrtc() {
  if (library_) dlclose(library_);
}

Result<std::shared_ptr<const Nvrtc>> Nvrtc::load() {
  std::shared_ptr<Nvrtc> n(new Nvrtc);
  const std::optional<std::string> wanted = env("COIL_NVRTC");
  std::string tried;
  const auto attempt = [&](const char* name) {
    // It stays in the process: what it allocated at its start it does not free when it is unloaded.
    if (!n->library_) n->library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    tried += std::string(tried.empty() ? "" : ", ") + name;
  };
  if (wanted) {
    attempt(wanted->c_str());
  } else {
    for (const char* name : kNames) attempt(name);
  }
  if (!n->library_) {
    return Error{ErrorCode::no_nvrtc, "NVIDIA's run-time compiler (NVRTC) is not found; tried " + tried, "",
                 "install it (the CUDA toolkit has it, and so has the PyPI package nvidia-cuda-nvrtc) and name it with COIL_NVRTC=path/libnvrtc.so.13"};
  }
  n->f_ = std::make_unique<Functions>();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(n->library_, name));
    return function != nullptr;
  };
  Functions& f = *n->f_;
  const bool complete = find(f.error_string, "nvrtcGetErrorString") && find(f.version, "nvrtcVersion") && find(f.create, "nvrtcCreateProgram") &&
                        find(f.destroy, "nvrtcDestroyProgram") && find(f.compile, "nvrtcCompileProgram") && find(f.log_size, "nvrtcGetProgramLogSize") &&
                        find(f.log, "nvrtcGetProgramLog") && find(f.cubin_size, "nvrtcGetCUBINSize") && find(f.cubin, "nvrtcGetCUBIN") &&
                        find(f.ptx_size, "nvrtcGetPTXSize") && find(f.ptx, "nvrtcGetPTX");
  if (!complete) return Error{ErrorCode::no_nvrtc, "the NVRTC that was found is too old", "", "NVRTC 12 or later is needed"};
  int major = 0, minor = 0;
  f.version(&major, &minor);
  n->version_ = fmt::format("{}.{}", major, minor);
  return std::shared_ptr<const Nvrtc>(std::move(n));
}

Result<Bytes> Nvrtc::compile(const CudaRequest& r) const {
  std::vector<const char*> texts = device_headers().text_pointers, names = device_headers().name_pointers;
  for (const VirtualFile& header : r.headers) {
    const auto built_in = std::find_if(names.begin(), names.end(), [&](const char* name) { return header.path == name; });
    if (built_in != names.end()) {
      texts[static_cast<size_t>(built_in - names.begin())] = header.text.c_str();
      continue;
    }
    texts.push_back(header.text.c_str());
    names.push_back(header.path.c_str());
  }
  Program program = nullptr;
  int status = f_->create(&program, r.source.c_str(), r.name.c_str(), static_cast<int>(names.size()), texts.data(), names.data());
  if (status) return Error{ErrorCode::internal, fmt::format("NVRTC: {}", f_->error_string(status)), "", ""};
  struct Owner {
    const Functions& f;
    Program& p;
    ~Owner() { f.destroy(&p); }
  } owner{*f_, program};
  const std::string arch = "--gpu-architecture=" + r.arch;
  std::vector<const char*> options = {arch.c_str(), "--std=c++20", "-default-device"};
  if (r.lines) options.push_back("-lineinfo");
  status = f_->compile(program, static_cast<int>(options.size()), options.data());
  if (status) {
    size_t size = 0;
    f_->log_size(program, &size);
    std::string log(size, '\0');
    if (size) f_->log(program, log.data());
    if (status == 5) {  // NVRTC_ERROR_INVALID_OPTION: the only option that varies is the architecture
      return Error{ErrorCode::unsupported_arch, fmt::format("this NVRTC ({}) does not know {}", version_, r.arch), "",
                   "choose another --target, or a newer NVRTC with COIL_NVRTC"};
    }
    if (!r.user_kernel.empty())
      return Error{ErrorCode::user_source, fmt::format("the source of user kernel '{}' does not compile (NVRTC {}):\n{}", r.user_kernel, version_, log.c_str()),
                   "", r.user_hint};
    return Error{ErrorCode::internal, fmt::format("NVRTC {}: {} in {}:\n{}", version_, f_->error_string(status), r.name, log.c_str()), "", ""};
  }
  size_t size = 0;
  (r.ptx ? f_->ptx_size : f_->cubin_size)(program, &size);
  Bytes out(size);
  (r.ptx ? f_->ptx : f_->cubin)(program, reinterpret_cast<char*>(out.data()));
  return out;
}

namespace {

cache::Key key_of(const CudaRequest& r, const std::string& nvrtc, const std::string& device_headers) {
  std::string headers;
  for (const VirtualFile& h : r.headers) headers += fmt::format("{} {} ", h.path, hex(hash128(h.text)));
  // Line tables name lines, and what is wrong with a user's text is named by its lines: then comments count.
  const std::string code = r.lines || !r.user_kernel.empty() ? r.source : without_comments(r.source);
  return {"cubin",
          fmt::format("text {}", hex(hash128(code))),  // not by the name: programs have equal units at different places
          {{"nvrtc", nvrtc},
           {"headers", headers},
           {"architecture", r.arch},
           {"ptx", r.ptx ? "yes" : "no"},
           {"lines", r.lines ? "yes" : "no"},
           {"device headers", device_headers},
           {"coil", COIL_VERSION}}};
}

// The places of the requests, those first that take long: templates, of which one takes as long as twenty loops, then long texts.
std::vector<size_t> longest_first(std::span<const CudaRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t i) { return std::pair(requests[i].source.find("cuda/params.h") != std::string::npos, requests[i].source.size()); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length(a) > length(b); });
  return order;
}

}  // namespace

Result<std::vector<Bytes>> Nvrtc::compile_all(std::span<const CudaRequest> requests, int threads, const CompileProgress& progress, const Known& known) const {
  const std::string device_headers = device_headers_hash();
  const std::vector<size_t> order = longest_first(requests);
  std::vector<std::optional<Result<Bytes>>> results(requests.size());
  std::mutex mutex;
  size_t done = 0;
  parallel_each(requests.size(), threads, [&](size_t k) {
    const CudaRequest& r = requests[order[k]];
    results[order[k]].emplace(known.get(key_of(r, version_, device_headers), [&] { return compile(r); }));
    if (!progress) return;
    const std::lock_guard lock(mutex);
    progress(++done, requests.size(), r.name);
  });
  std::vector<Bytes> out;
  for (auto& r : results) {
    if (!r->ok()) return r->error();
    out.push_back(std::move(r->value()));
  }
  return out;
}

}  // namespace coil::toolchain
