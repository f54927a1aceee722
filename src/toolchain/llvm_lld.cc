// The one place that talks to lld, whose configuration and symbol tables are globals. See llvm_lld.h.
#include "toolchain/llvm_lld.h"

#include <lld/Common/CommonLinkerContext.h>
#include <lld/Common/Driver.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>

#include <cerrno>
#include <cstring>
#include <mutex>

LLD_HAS_DRIVER(elf)

namespace coil::toolchain {
namespace {

// Of lld's own, beside its inputs: what it takes for a package is less.
constexpr size_t kReserve = size_t{8} << 20;

std::mutex mutex;
bool left_over = false;  // the last run was left at an error: lld's globals are as it left them
bool broken = false;     // memory ran out in it, more than the reserve: nothing can be done with it any more

// What its context would do at its end. The context itself is lost: it may hold what was made by half.
void forget_run() {
  if (lld::hasContext() && lld::commonContext().e.cleanupCallback) lld::commonContext().e.cleanupCallback();
  left_over = false;
}

bool link(const std::vector<std::string>& args, std::string& messages) {
  if (left_over) forget_run();
  left_over = true;
  std::vector<const char*> pointers;
  for (const std::string& arg : args) pointers.push_back(arg.c_str());
  llvm::raw_string_ostream stream(messages);
  const bool ok = lld::elf::link(pointers, stream, stream, /*exitEarly=*/false, /*disableOutput=*/false);
  stream.flush();
  lld::CommonLinkerContext::destroy();
  left_over = false;
  return ok;
}

}  // namespace

Ending run_lld(const std::vector<std::string>& args, size_t input_bytes, bool& ok, std::string& messages) {
  const std::lock_guard lock(mutex);
  ok = false;
  if (broken) return Ending::no_memory;
  std::string reason;
  // Where lld says fatal() it ends the process, but for a context like this one.
  bool begun = false;
  auto run = [&] {
    begun = true;
    llvm::CrashRecoveryContext context;
    context.RunSafely([&] { ok = link(args, messages); });
  };
  const Ending ending = guarded_here(run, reason, kReserve + input_bytes);
  broken = begun && ending == Ending::no_memory;
  // It was told so by the system: a file that could not be mapped.
  if (!ok && messages.find(std::strerror(ENOMEM)) != std::string::npos) return Ending::no_memory;
  if (ending == Ending::gave_up) messages += reason;
  return ending;
}

Ending undefined_symbols(std::span<const uint8_t> library, std::vector<std::string>& names) {
  auto work = [&] {
    const llvm::StringRef text(reinterpret_cast<const char*>(library.data()), library.size());
    auto object = llvm::object::ELFObjectFile<llvm::object::ELF64LE>::create(llvm::MemoryBufferRef(text, "linked"));
    if (!object) return llvm::consumeError(object.takeError());
    for (const auto& symbol : object->getDynamicSymbolIterators()) {
      // lld wrote this table, so that an unreadable entry is a bug.
      const uint32_t flags = llvm::cantFail(symbol.getFlags());
      const llvm::StringRef name = llvm::cantFail(symbol.getName());
      if ((flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name.empty()) names.push_back(name.str());
    }
  };
  std::string reason;
  return guarded(work, reason);
}

}  // namespace coil::toolchain
