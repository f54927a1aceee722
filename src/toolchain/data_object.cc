#include "toolchain/data_object.h"

#include <elf.h>

#include <cstring>

namespace coil::toolchain {
namespace {

class Image {
 public:
  size_t add(const void* data, size_t size, size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    const size_t at = bytes_.size();
    const auto* p = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), p, p + size);
    return at;
  }
  std::vector<uint8_t> take() { return std::move(bytes_); }
  uint8_t* data() { return bytes_.data(); }

 private:
  std::vector<uint8_t> bytes_;
};

Elf64_Shdr section(Elf64_Word name, Elf64_Word type, Elf64_Xword flags, size_t at, size_t size, Elf64_Xword alignment) {
  Elf64_Shdr s = {};
  s.sh_name = name, s.sh_type = type, s.sh_flags = flags, s.sh_offset = at, s.sh_size = size, s.sh_addralign = alignment;
  return s;
}

}  // namespace

std::vector<uint8_t> data_object(const HostMachine& machine, const std::string& symbol, std::span<const uint8_t> bytes) {
  const std::string data_name = ".rodata." + symbol;
  std::string names(1, '\0');
  const auto name = [&](const std::string& text) {
    const auto at = static_cast<Elf64_Word>(names.size());
    names += text + '\0';
    return at;
  };
  const Elf64_Word data = name(data_name), symbols = name(".symtab"), strings = name(".strtab"), note = name(".note.GNU-stack");
  const std::string symbol_names = std::string(1, '\0') + symbol + '\0';

  Elf64_Ehdr head = {};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64, head.e_ident[EI_DATA] = ELFDATA2LSB, head.e_ident[EI_VERSION] = EV_CURRENT;
  head.e_type = ET_REL, head.e_machine = machine.elf_machine, head.e_version = EV_CURRENT;
  head.e_ehsize = sizeof head, head.e_shentsize = sizeof(Elf64_Shdr), head.e_shnum = 6, head.e_shstrndx = 4;
  Elf64_Sym entries[2] = {};
  entries[1].st_name = 1, entries[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), entries[1].st_other = STV_HIDDEN;
  entries[1].st_shndx = 1, entries[1].st_size = bytes.size();

  Image image;
  image.add(&head, sizeof head, 1);
  Elf64_Shdr sections[6] = {};
  sections[1] = section(data, SHT_PROGBITS, SHF_ALLOC, image.add(bytes.data(), bytes.size(), 64), bytes.size(), 64);
  sections[2] = section(symbols, SHT_SYMTAB, 0, image.add(entries, sizeof entries, 8), sizeof entries, 8);
  sections[2].sh_link = 3, sections[2].sh_info = 1, sections[2].sh_entsize = sizeof(Elf64_Sym);
  sections[3] = section(strings, SHT_STRTAB, 0, image.add(symbol_names.data(), symbol_names.size(), 1), symbol_names.size(), 1);
  sections[4] = section(strings, SHT_STRTAB, 0, image.add(names.data(), names.size(), 1), names.size(), 1);
  sections[5] = section(note, SHT_PROGBITS, 0, sections[4].sh_offset, 0, 1);
  const size_t table = image.add(sections, sizeof sections, 8);
  reinterpret_cast<Elf64_Ehdr*>(image.data())->e_shoff = table;
  return image.take();
}

}  // namespace coil::toolchain
