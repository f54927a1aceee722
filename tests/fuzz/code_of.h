// What a compiler sees of a text: no comments, and literals and file names of #line as "". By the phases of translation of C++ and nothing of coil's own:
// trigraphs (which some compilers read), lines that end in a backslash, then comments, literals and raw literals, in which the first two mean nothing.
#pragma once

#include <string>
#include <string_view>

namespace coil::testing {

class CodeOf {
 public:
  explicit CodeOf(std::string_view text) : text_(text) {}

  std::string run() {
    while (!at_end()) step();
    return std::move(code_);
  }

 private:
  // One character after trigraphs and joined lines, and how many of the text's it is. The most lenient reading: spaces may follow the backslash, and each
  // of CR, LF, VT and FF ends a line.
  struct Read {
    char c;
    size_t next;
  };
  static bool ends_line(char c) { return c == '\n' || c == '\r' || c == '\v' || c == '\f'; }
  static bool names(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  Read plain(size_t at) const {
    if (text_.substr(at, 2) ==
            "?"
            "?" &&
        at + 2 < text_.size()) {
      const size_t which = std::string_view("=/'()!<>-").find(text_[at + 2]);
      if (which != std::string_view::npos) return {"#\\^[]|{}~"[which], at + 3};
    }
    return {text_[at], at + 1};
  }
  Read read(size_t at) const {
    for (;;) {
      const Read r = plain(at);
      if (r.c != '\\') return r;
      size_t end = r.next;
      while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t')) ++end;
      if (end >= text_.size() || !ends_line(text_[end])) return r;
      end += text_[end] == '\r' && end + 1 < text_.size() && text_[end + 1] == '\n' ? 2 : 1;
      if (end >= text_.size()) return {'\n', end};
      at = end;
    }
  }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : read(at_).c; }
  char second() const {
    if (at_end()) return '\0';
    const size_t next = read(at_).next;
    return next < text_.size() ? read(next).c : '\0';
  }
  char take() {
    const Read r = read(at_);
    at_ = r.next;
    return r.c;
  }

  void step() {
    const char c = peek();
    if (c == '/' && second() == '/') return line_comment();
    if (c == '/' && second() == '*') return block_comment();
    if (c == '"') return raw() ? raw_literal() : literal('"');
    // An apostrophe within a number parts its digits.
    if (c == '\'' && !(within_number() && names(second()))) return literal('\'');
    take();
    if (c != '\n' || (!code_.empty() && code_.back() != '\n')) code_ += c;  // comments may take more lines or fewer
  }

  void line_comment() {
    while (!at_end() && !ends_line(peek())) take();  // the line's end is the code's
  }
  void block_comment() {
    take(), take();
    while (!at_end() && !(peek() == '*' && second() == '/')) take();
    if (!at_end()) take(), take();
    code_ += ' ';
  }
  // What is not printable is code, so that it is a difference.
  void literal(char quote) {
    take();
    while (!at_end() && peek() != quote) {
      const char c = take();
      if (static_cast<unsigned char>(c) >= 0x7f || static_cast<unsigned char>(c) < 0x20) code_ += "(unescaped)";
      if (ends_line(c)) break;
      if (c == '\\' && !at_end()) take();
    }
    if (!at_end() && peek() == quote) take();
    code_ += quote, code_ += quote;
  }

  // R, uR, u8R, UR, LR before the quote, as a word of its own.
  bool raw() const {
    size_t begin = code_.size();
    while (begin > 0 && names(code_[begin - 1])) --begin;
    const std::string_view word = std::string_view(code_).substr(begin);
    return word == "R" || word == "uR" || word == "u8R" || word == "UR" || word == "LR";
  }
  void raw_literal() {
    const size_t quote = text_.find('"', at_), open = text_.find('(', quote);
    if (open == std::string_view::npos) return literal('"');
    const std::string end = ")" + std::string(text_.substr(quote + 1, open - quote - 1)) + "\"";
    const size_t close = text_.find(end, open);
    at_ = close == std::string_view::npos ? text_.size() : close + end.size();
    code_ += "\"\"";
  }
  bool within_number() const {
    size_t begin = code_.size();
    while (begin > 0 && (names(code_[begin - 1]) || code_[begin - 1] == '\'' || code_[begin - 1] == '.')) --begin;
    return begin < code_.size() && code_[begin] >= '0' && code_[begin] <= '9';
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string code_;
};

inline std::string code_of(std::string_view text) { return CodeOf(text).run(); }

}  // namespace coil::testing
