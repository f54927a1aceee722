// See generator.h: conversations.
#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/conversation_errors.h"
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
constexpr char kConversationMagic[8] = {'C', 'O', 'I', 'L', 'T', 'A', 'L', 'K'};

void put(std::vector<uint8_t>* bytes, const void* from, size_t size) {
  const auto* begin = static_cast<const uint8_t*>(from);
  bytes->insert(bytes->end(), begin, begin + size);
}

// Takes `count` numbers off the front; false: there are not as many.
bool take_numbers(std::span<const uint8_t>* bytes, uint64_t count, std::vector<int64_t>* numbers) {
  if (count > bytes->size() / sizeof(int64_t)) return false;
  numbers->resize(count);
  if (count > 0) std::memcpy(numbers->data(), bytes->data(), count * sizeof(int64_t));
  *bytes = bytes->subspan(count * sizeof(int64_t));
  return true;
}

}  // namespace

Result<std::unique_ptr<Conversation>> Conversation::make(std::shared_ptr<Generator> generator, Sampling sampling) {
  TRY_STATUS(check(sampling));
  std::unique_ptr<Conversation> made(new Conversation(std::move(generator), std::move(sampling)));
  if (made->generator_->all_slots()) {
    TRY(made->slot_, made->generator_->all_slots()->take());
  } else if (made->generator_->has_state()) {
    TRY(auto state, State::make(made->generator_->model(), true));
    made->state_ = std::move(state);
  }
  return made;
}

Result<std::unique_ptr<Conversation>> Conversation::fork() {
  std::unique_ptr<Conversation> other(new Conversation(generator_, sampling_));
  if (slot_) {
    TRY(other->slot_, slot_->fork());
  } else if (state_) {
    TRY(auto state, state_->fork());
    other->state_ = std::move(state);
  }
  other->source_ = source_;
  other->watched_ = watched_;
  other->tokens_ = tokens_;
  other->processed_ = processed_;
  return other;
}

Status Conversation::set_sampling(Sampling sampling) {
  TRY_STATUS(check(sampling));
  sampling_ = std::move(sampling);
  rules_.forget();
  return ok_status();
}

Status Conversation::append(std::span<const int64_t> tokens) {
  const int64_t vocabulary = generator_->vocabulary();
  for (const int64_t t : tokens) {
    if (t < 0 || t >= vocabulary)
      return Error{ErrorCode::input_value, "token " + std::to_string(t) + " is not in the vocabulary of " + std::to_string(vocabulary), "",
                   "use the tokenizer that the model was trained with"};
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return ok_status();
}

Status Conversation::set_source(std::span<const int64_t> tokens) {
  TRY(source_, generator_->read_source(tokens));
  processed_ = 0;
  return ok_status();
}

// One call of the program, with tokens from `begin` on; logits of the last `rows` of them.
Status Conversation::process_piece(int64_t begin, int64_t count, int64_t rows, std::vector<float>* logits) {
  if (generator_->takes_source() && !source_) return no_source();
  const std::span<const int64_t> piece = std::span<const int64_t>(tokens_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  const SlotWork work = {slot_.get(), piece, begin, rows, logits};
  const Status status = slot_ ? generator_->call({&work, 1}) : generator_->call(piece, begin, state_, source_.get(), rows, logits);
  if (status.ok()) processed_ = begin + count;
  return status.ok() || status.error().code != ErrorCode::input_value ? status : Status(at_tokens(status.error(), begin, count));
}

// Calls the program with what is new, in pieces of as many tokens as it takes, but for the last piece, whose begin it returns: it has the last `rows` tokens.
Result<int64_t> Conversation::process_front(int64_t rows) {
  const auto count = static_cast<int64_t>(tokens_.size());
  if (count == 0) return empty();
  if (!generator_->has_state()) {
    if (count > generator_->most())
      return Error{ErrorCode::input_value,
                   "the conversation has " + std::to_string(count) + " tokens, the program takes at most " + std::to_string(generator_->most()), "",
                   "shorten it (truncate)"};
    return 0;
  }
  // The last token is processed again where only its logits are wanted: caches by place hold the same row after it.
  for (int64_t at = std::min(processed_, count - rows);;) {
    const int64_t n = generator_->piece(count - at, rows);
    if (n == 0) return Error{ErrorCode::input_value, "no program takes the last " + std::to_string(rows) + " tokens in one call", "", ""};
    if (at + n == count) return at;
    TRY_STATUS(process_piece(at, n, 0, nullptr));
    at += n;
  }
}

// Then that one, too; logits of the last `rows` tokens.
Status Conversation::process(int64_t rows, std::vector<float>* logits) {
  TRY(const int64_t begin, process_front(rows));
  return process_piece(begin, static_cast<int64_t>(tokens_.size()) - begin, rows, logits);
}

Result<int64_t> Conversation::next() {
  chances_.clear();
  TRY(const int64_t begin, process_front(1));
  return process_and_choose(begin);
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

Result<std::vector<int64_t>> Conversation::generate(int64_t count, std::span<const int64_t> stop, int64_t draft, int64_t steps) {
  std::vector<int64_t> made;
  chances_.clear();
  if (device_chooses() && draft <= 0 && !slot_) return generate_ahead(count, stop, steps);
  const auto ends = [&](int64_t token) { return std::find(stop.begin(), stop.end(), token) != stop.end(); };
  const int64_t vocabulary = generator_->vocabulary();
  while (static_cast<int64_t>(made.size()) < count) {
    std::vector<int64_t> guess;
    const int64_t room = std::min({draft, count - static_cast<int64_t>(made.size()) - 1, generator_->most() - 1});
    if (room > 0 && static_cast<int64_t>(tokens_.size()) > kRepeated) guess = repetition(room);
    while (!guess.empty() && !generator_->takes(static_cast<int64_t>(guess.size()) + 1)) guess.pop_back();
    if (slot_ && guess.empty() && device_chooses()) {
      TRY(const int64_t begin, process_front(1));
      TRY(const int64_t token, process_and_choose(begin));
      made.push_back(token);
      if (ends(token)) return made;
      continue;
    }
    const Status processed = process_with(guess);
    if (!processed.ok() && !guess.empty()) {  // guesses may reach behind the caches' end
      draft = 0;
      continue;
    }
    TRY_STATUS(processed);
    // Each token is chosen as if the ones before had come one by one; the guesses are right as long as they are what is chosen.
    for (size_t i = 0; i <= guess.size(); ++i) {
      TRY(const int64_t token, choose(std::span(logits_).subspan(i * static_cast<size_t>(vocabulary), static_cast<size_t>(vocabulary))));
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
    return Error{ErrorCode::bad_option,
                 "the conversation has " + std::to_string(tokens_.size()) + " tokens, " + std::to_string(count) + " of them cannot be kept", "", ""};
  tokens_.resize(static_cast<size_t>(count));
  processed_ = std::min(processed_, count);
  rules_.forget();
  return ok_status();
}

Result<std::vector<uint8_t>> Conversation::save() {
  SavedHead head{};
  std::memcpy(head.magic, kConversationMagic, sizeof kConversationMagic);
  head.tokens = tokens_.size();
  head.processed = processed_;
  std::vector<uint8_t> bytes;
  put(&bytes, &head, sizeof head);
  put(&bytes, tokens_.data(), tokens_.size() * sizeof(int64_t));
  if (generator_->takes_source()) {
    const uint64_t count = source().size();
    put(&bytes, &count, sizeof count);
    put(&bytes, source().data(), count * sizeof(int64_t));
  }
  if (generator_->has_state()) {
    TRY(const std::vector<uint8_t> state, slot_ ? slot_->save() : state_->save());
    bytes.insert(bytes.end(), state.begin(), state.end());
  }
  return bytes;
}

Status Conversation::restore(std::span<const uint8_t> bytes) {
  const auto damaged = [](const char* what) {
    return Error{ErrorCode::state_mismatch, std::string("the saved conversation is damaged: ") + what, "", "save it again"};
  };
  SavedHead head;
  if (bytes.size() < sizeof head) return damaged("it is shorter than its head");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, kConversationMagic, sizeof kConversationMagic) != 0) return damaged("it does not begin as one");
  std::vector<int64_t> tokens, source, count;
  std::span<const uint8_t> state = bytes.subspan(sizeof head);
  if (!take_numbers(&state, head.tokens, &tokens)) return damaged("it ends within its tokens");
  if (head.processed < 0 || static_cast<uint64_t>(head.processed) > head.tokens) return damaged("it has more tokens processed than there are");
  if (generator_->takes_source() && !(take_numbers(&state, 1, &count) && take_numbers(&state, static_cast<uint64_t>(count[0]), &source)))
    return damaged("it ends within its source");
  const int64_t vocabulary = generator_->vocabulary();
  if (std::any_of(tokens.begin(), tokens.end(), [&](int64_t t) { return t < 0 || t >= vocabulary; })) return damaged("a token is not in the vocabulary");
  std::shared_ptr<const Source> read;
  if (!source.empty()) {
    auto encoded = generator_->read_source(source);
    if (!encoded.ok()) return encoded.error().code == ErrorCode::input_value ? damaged("the encoder does not take its source") : encoded.error();
    read = std::move(encoded).value();
  }
  if (slot_) {
    TRY_STATUS(slot_->restore(state, head.processed, head.processed > 0 ? tokens[static_cast<size_t>(head.processed) - 1] : 0));
  } else if (state_) {
    TRY_STATUS(state_->restore(state.data(), state.size()));
  } else if (!state.empty()) {
    return damaged("something follows its end");
  }
  tokens_ = std::move(tokens);
  rules_.forget();
  source_ = std::move(read);
  processed_ = head.processed;
  return ok_status();
}

}  // namespace coil::runtime
