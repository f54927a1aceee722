// See generator.h: conversations.
#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/generator.h"

namespace coil::runtime {
namespace {

constexpr int64_t kRepeated = 3;  // last tokens that an earlier place must have too, for what follows it to be a draft

// A saved conversation: this, the tokens, then the saved state.
struct SavedHead {
  char magic[8];
  uint64_t tokens;
  int64_t processed;
};
constexpr char kMagic[8] = {'C', 'O', 'I', 'L', 'T', 'A', 'L', 'K'};

}  // namespace

Result<std::unique_ptr<Conversation>> Conversation::make(std::shared_ptr<Generator> generator, Sampling sampling) {
  TRY_STATUS(check(sampling));
  std::unique_ptr<Conversation> made(new Conversation(std::move(generator), std::move(sampling)));
  if (made->generator_->has_state()) {
    TRY(auto state, State::make(made->generator_->model()));
    made->state_ = std::move(state);
  }
  return made;
}

Result<std::unique_ptr<Conversation>> Conversation::fork() {
  std::unique_ptr<Conversation> other(new Conversation(generator_, sampling_));
  if (state_) {
    TRY(auto state, state_->fork());
    other->state_ = std::move(state);
  }
  other->tokens_ = tokens_;
  other->processed_ = processed_;
  return other;
}

Status Conversation::set_sampling(Sampling sampling) {
  TRY_STATUS(check(sampling));
  sampling_ = std::move(sampling);
  return ok_status();
}

Status Conversation::append(std::span<const int64_t> tokens) {
  const int64_t vocabulary = generator_->vocabulary();
  for (const int64_t t : tokens) {
    if (t < 0 || t >= vocabulary)
      return Error{ErrorCode::input_value, "token " + std::to_string(t) + " is not in the vocabulary of " + std::to_string(vocabulary), "", "use the tokenizer that the model was trained with"};
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return ok_status();
}

// Calls the program with what is new, in pieces of as many tokens as it takes; logits of the last `rows` tokens.
Status Conversation::process(int64_t rows, std::vector<float>* logits) {
  const auto count = static_cast<int64_t>(tokens_.size());
  if (count == 0) return Error{ErrorCode::input_value, "the conversation is empty", "", "append a prompt (or the token that begins texts)"};
  const std::span<const int64_t> all(tokens_);
  const auto call = [&](int64_t begin, int64_t n, int64_t wanted) -> Status {
    Status status = generator_->call(all.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), begin, state_, wanted, logits);
    if (status.ok() || status.error().code != ErrorCode::input_value) return status;
    Error error = std::move(status).error();
    error.message = "token " + std::to_string(begin) + (n > 1 ? " to " + std::to_string(begin + n - 1) : "") + " of the conversation: " + error.message;
    error.hint = "where a position is out of range the caches are full: shorten the conversation (truncate), or export the model with longer ones";
    return error;
  };
  if (!state_) {
    if (count > generator_->most()) return Error{ErrorCode::input_value, "the conversation has " + std::to_string(count) + " tokens, the program takes at most " + std::to_string(generator_->most()), "", "shorten it (truncate)"};
    return call(0, count, rows);
  }
  // The last token is processed again where only its logits are wanted: caches by place hold the same row after it.
  const int64_t from = std::min(processed_, count - rows);
  for (int64_t at = from; at < count;) {
    const int64_t n = generator_->piece(count - at, rows);
    if (n == 0) return Error{ErrorCode::input_value, "no program takes the last " + std::to_string(rows) + " tokens in one call", "", ""};
    TRY_STATUS(call(at, n, at + n == count ? rows : 1));
    at += n;
    processed_ = at;
  }
  return ok_status();
}

Result<int64_t> Conversation::next() {
  TRY_STATUS(process(1, &logits_));
  TRY(const int64_t token, sample(logits_, tokens_, sampling_));
  tokens_.push_back(token);
  return token;
}

// What followed the last tokens when they came before, latest first; empty if they did not.
std::vector<int64_t> Conversation::repetition(int64_t count) const {
  const auto n = static_cast<int64_t>(tokens_.size());
  for (int64_t at = n - kRepeated - 1; at >= 0; --at) {
    if (!std::equal(tokens_.end() - kRepeated, tokens_.end(), tokens_.begin() + at)) continue;
    const int64_t begin = at + kRepeated;
    return {tokens_.begin() + begin, tokens_.begin() + begin + std::min(count, n - begin)};
  }
  return {};
}

// Logits of the last token and of each guess behind it. The guesses are gone when it ends, be it for want of memory.
Status Conversation::process_with(const std::vector<int64_t>& guess) {
  struct Guessed {
    Conversation& c;
    size_t before = c.tokens_.size();
    ~Guessed() {
      c.tokens_.resize(before);
      c.processed_ = std::min(c.processed_, static_cast<int64_t>(before));
    }
  };
  const Guessed guessed{*this};
  tokens_.insert(tokens_.end(), guess.begin(), guess.end());
  return process(static_cast<int64_t>(guess.size()) + 1, &logits_);
}

Result<std::vector<int64_t>> Conversation::generate(int64_t count, std::span<const int64_t> stop, int64_t draft) {
  std::vector<int64_t> made;
  const auto ends = [&](int64_t token) { return std::find(stop.begin(), stop.end(), token) != stop.end(); };
  const int64_t vocabulary = generator_->vocabulary();
  while (static_cast<int64_t>(made.size()) < count) {
    std::vector<int64_t> guess;
    const int64_t room = std::min({draft, count - static_cast<int64_t>(made.size()) - 1, generator_->most() - 1});
    if (room > 0 && static_cast<int64_t>(tokens_.size()) > kRepeated) guess = repetition(room);
    while (!guess.empty() && !generator_->takes(static_cast<int64_t>(guess.size()) + 1)) guess.pop_back();
    const Status processed = process_with(guess);
    if (!processed.ok() && !guess.empty()) {  // guesses may reach behind the caches' end
      draft = 0;
      continue;
    }
    TRY_STATUS(processed);
    // Each token is chosen as if the ones before had come one by one; the guesses are right as long as they are what is chosen.
    for (size_t i = 0; i <= guess.size(); ++i) {
      TRY(const int64_t token, sample(std::span(logits_).subspan(i * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary)), tokens_, sampling_));
      tokens_.push_back(token);
      made.push_back(token);
      if (ends(token)) return made;
      if (i == guess.size() || token != guess[i]) break;
      ++processed_;
    }
  }
  return made;
}

Status Conversation::truncate(int64_t count) {
  if (count < 0 || count > static_cast<int64_t>(tokens_.size()))
    return Error{ErrorCode::bad_option, "the conversation has " + std::to_string(tokens_.size()) + " tokens, " + std::to_string(count) + " of them cannot be kept", "", ""};
  tokens_.resize(static_cast<size_t>(count));
  processed_ = std::min(processed_, count);
  return ok_status();
}

Result<std::vector<uint8_t>> Conversation::save() {
  SavedHead head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.tokens = tokens_.size();
  head.processed = processed_;
  std::vector<uint8_t> bytes(sizeof head + tokens_.size() * sizeof(int64_t));
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!tokens_.empty()) std::memcpy(bytes.data() + sizeof head, tokens_.data(), tokens_.size() * sizeof(int64_t));
  if (state_) {
    TRY(const std::vector<uint8_t> state, state_->save());
    bytes.insert(bytes.end(), state.begin(), state.end());
  }
  return bytes;
}

Status Conversation::restore(std::span<const uint8_t> bytes) {
  const auto damaged = [](const char* what) { return Error{ErrorCode::state_mismatch, std::string("the saved conversation is damaged: ") + what, "", "save it again"}; };
  SavedHead head;
  if (bytes.size() < sizeof head) return damaged("it is shorter than its head");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) return damaged("it does not begin as one");
  if (head.tokens > (bytes.size() - sizeof head) / sizeof(int64_t)) return damaged("it ends within its tokens");
  if (head.processed < 0 || static_cast<uint64_t>(head.processed) > head.tokens) return damaged("it has more tokens processed than there are");
  std::vector<int64_t> tokens(head.tokens);
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data() + sizeof head, tokens.size() * sizeof(int64_t));
  const int64_t vocabulary = generator_->vocabulary();
  if (std::any_of(tokens.begin(), tokens.end(), [&](int64_t t) { return t < 0 || t >= vocabulary; })) return damaged("a token is not in the vocabulary");
  const std::span<const uint8_t> state = bytes.subspan(sizeof head + tokens.size() * sizeof(int64_t));
  if (state_) {
    TRY_STATUS(state_->restore(state.data(), state.size()));
  } else if (!state.empty()) {
    return damaged("something follows its end");
  }
  tokens_ = std::move(tokens);
  processed_ = head.processed;
  return ok_status();
}

}  // namespace coil::runtime
