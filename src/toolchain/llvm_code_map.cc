// See code_map.h.
#include <llvm/DebugInfo/DIContext.h>
#include <llvm/DebugInfo/DWARF/DWARFContext.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>
#include <map>

#include "base/without_memory.h"
#include "toolchain/code_map.h"
#include "toolchain/llvm_guard.h"

namespace coil::toolchain {
namespace {

using Library = llvm::object::ELFObjectFile<llvm::object::ELF64LE>;

// The numbers of files, in the order in which lines name them.
class Files {
 public:
  explicit Files(std::vector<std::string>& names) : names_(names) {}
  uint32_t number(const std::string& name) {
    const auto [at, fresh] = numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
    if (fresh) names_.push_back(name);
    return at->second;
  }

 private:
  std::vector<std::string>& names_;
  std::map<std::string, uint32_t> numbers_;
};

void add_lines(llvm::DWARFContext& context, Files& files, CodeFunction& f) {
  using Kind = llvm::DILineInfoSpecifier::FileLineInfoKind;
  const llvm::DILineInfoSpecifier what(Kind::AbsoluteFilePath, llvm::DINameKind::None);
  for (const auto& [address, line] : context.getLineInfoForAddressRange({f.address, llvm::object::SectionedAddress::UndefSection}, f.size, what)) {
    if (line.Line == 0) continue;  // of no line: what the compiler added
    f.lines.push_back({address, files.number(line.FileName), line.Line});
  }
}

bool read(std::span<const uint8_t> library, CodeMap& map) {
  const llvm::StringRef text(reinterpret_cast<const char*>(library.data()), library.size());
  auto object = Library::create(llvm::MemoryBufferRef(text, "linked"));
  if (!object) return llvm::consumeError(object.takeError()), false;
  const std::unique_ptr<llvm::DWARFContext> context = llvm::DWARFContext::create(*object);
  Files files(map.files);
  for (const llvm::object::ELFSymbolRef symbol : object->symbols()) {
    // lld wrote this table, so that an unreadable entry is a bug.
    if (symbol.getELFType() != llvm::ELF::STT_FUNC || symbol.getSize() == 0 || (llvm::cantFail(symbol.getFlags()) & llvm::object::SymbolRef::SF_Undefined))
      continue;
    CodeFunction f;
    f.name = llvm::cantFail(symbol.getName()).str();
    f.address = llvm::cantFail(symbol.getAddress());
    f.size = symbol.getSize();
    add_lines(*context, files, f);
    map.functions.push_back(std::move(f));
  }
  std::sort(map.functions.begin(), map.functions.end(),
            [](const CodeFunction& a, const CodeFunction& b) { return std::tie(a.address, a.name) < std::tie(b.address, b.name); });
  return true;
}

}  // namespace

Result<CodeMap> code_map(std::span<const uint8_t> library) {
  CodeMap map;
  bool ok = false;
  std::string reason;
  auto work = [&] { ok = read(library, map); };
  const Ending ending = guarded(work, reason);
  if (ending == Ending::no_memory) return no_memory();
  if (!ok) return Error{ErrorCode::internal, "the linked library cannot be read back " + reason, "", ""};
  return map;
}

}  // namespace coil::toolchain
