#include "frontend/archive.h"

#include <algorithm>
#include <vector>

namespace coil {

ProgramArchive::ProgramArchive(const ZipReader& zip) : zip_(std::make_shared<const ZipReader>(zip)) {
  if (zip_->entries().empty()) return;
  const std::string& first = zip_->entries()[0].name;
  size_t slash = first.find('/');
  if (slash == std::string::npos) return;
  std::string root = first.substr(0, slash + 1);
  bool shared = std::all_of(zip_->entries().begin(), zip_->entries().end(), [&](const ZipEntry& e) { return e.name.starts_with(root); });
  if (shared) root_ = std::move(root);
}

const ZipEntry* ProgramArchive::find(std::string_view entry) const { return zip_->find(root_ + std::string(entry)); }

std::vector<std::string_view> ProgramArchive::list(std::string_view prefix) const {
  std::vector<std::string_view> names;
  for (const ZipEntry& e : zip_->entries()) {
    std::string_view name = std::string_view(e.name).substr(root_.size());
    if (name.starts_with(prefix)) names.push_back(name);
  }
  return names;
}

Result<std::string> ProgramArchive::text(std::string_view entry, uint64_t max_bytes) const {
  TRY(const ZipEntry* e, zip_->get(root_ + std::string(entry)));
  return zip_->read_text(*e, max_bytes);
}

Result<JsonDoc> ProgramArchive::json(std::string_view entry) const {
  TRY(std::string content, text(entry, uint64_t{1} << 30));
  return JsonDoc::parse(content, std::string(entry));
}

Result<ProgramArchive::Bytes> ProgramArchive::bytes(std::string_view entry, bool check) const {
  TRY(const ZipEntry* e, zip_->get(root_ + std::string(entry)));
  if (e->deflated) {
    TRY(std::vector<uint8_t> content, zip_->read(*e, uint64_t{1} << 40));
    auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(content));
    return Bytes{owner, *owner, zip_->file_bytes()};
  }
  if (check) TRY_STATUS(zip_->verify(*e));
  TRY(std::span<const uint8_t> span, zip_->data_span(*e));
  return Bytes{zip_, span, zip_->file_bytes()};
}

}  // namespace coil
