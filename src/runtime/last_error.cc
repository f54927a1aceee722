// See last_error.h.
#include "runtime/last_error.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace coil::runtime {
namespace {

constexpr size_t kMostBytes = 4096;
constexpr char kNoMemory[] = "COIL-E401: no memory (and none to say more about it)";

void free_text(void* text) {
  if (text != kNoMemory) std::free(text);
}

// The key of the threads' texts. A thread that ends frees its own; when the library is unloaded before, nobody does.
struct Key {
  pthread_key_t key = 0;
  bool made = pthread_key_create(&key, free_text) == 0;
  ~Key() {
    if (made) pthread_key_delete(key);
  }
};
const Key texts;

char* text_of_thread() noexcept {
  if (!texts.made) return nullptr;
  void* text = pthread_getspecific(texts.key);
  if (text && text != kNoMemory) return static_cast<char*>(text);
  text = std::malloc(kMostBytes);
  if (text && pthread_setspecific(texts.key, text) == 0) return static_cast<char*>(text);
  std::free(text);
  pthread_setspecific(texts.key, kNoMemory);
  return nullptr;
}

void print(char* text, ErrorCode code, const char* message, const char* where, const char* hint) noexcept {
  const size_t used = static_cast<size_t>(std::snprintf(text, kMostBytes, "COIL-E%03d: ", static_cast<int>(code)));
  size_t at = used;
  // As Error::to_string: names in it are of files that anyone wrote.
  const auto add = [&](const char* part, Lines lines) { at += show_into(text + at, kMostBytes - 1 - at, part, lines); };
  const bool compilers = code == ErrorCode::internal || code == ErrorCode::user_source;
  add(message, compilers ? Lines::keep : Lines::escape);
  for (const auto& [label, part] : {std::pair("\n  at ", where), std::pair("\n  hint: ", hint)}) {
    if (*part) add(label, Lines::keep), add(part, Lines::escape);
  }
  text[at] = 0;
}

}  // namespace

int32_t keep_error(ErrorCode code, const char* message) noexcept {
  if (char* text = text_of_thread()) print(text, code, message, "", "");
  return static_cast<int32_t>(code);
}

int32_t keep_error(const Error& error) noexcept {
  if (char* text = text_of_thread()) print(text, error.code, error.message.c_str(), error.where.c_str(), error.hint.c_str());
  return static_cast<int32_t>(error.code);
}

const char* last_error() noexcept {
  const void* text = texts.made ? pthread_getspecific(texts.key) : nullptr;
  return text ? static_cast<const char*>(text) : "";
}

}  // namespace coil::runtime
