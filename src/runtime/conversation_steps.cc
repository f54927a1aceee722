// See generator.h: steps of conversations on a device that chooses tokens, and of several conversations at once.
#include <algorithm>
#include <string>

#include "runtime/conversation_errors.h"
#include "runtime/generator.h"

namespace coil::runtime {

// The rules of the next token, in the device's memory.
Result<CudaSample> Conversation::device_rules(std::span<const int64_t> stop) {
  CudaSample rules;
  TRY_STATUS(rules_.put(sampling_, tokens_, stop, generator_->vocabulary(), &rules));
  rules.num_best = static_cast<int>(watched_);
  return rules;
}

// What the device has made of them; chances: where they are watched.
Result<int64_t> Conversation::take_choice(int64_t number, const cd::SampleChances* chances) {
  TRY_STATUS(choice_error(number));
  tokens_.push_back(number);
  rules_.add(1);
  if (watched_ >= 0) chances_.push_back(chances_of(*chances, number, watched_));
  return number;
}

// The last piece, from `begin` on, and the token after it.
Result<int64_t> Conversation::process_and_choose(int64_t begin) {
  const auto count = static_cast<int64_t>(tokens_.size()) - begin;
  if (!device_chooses()) {
    TRY_STATUS(process_piece(begin, count, 1, &logits_));
    return choose(logits_);
  }
  if (!slot_) {
    TRY(const std::vector<int64_t> made, generate_ahead(1, {}, 1));
    return made[0];
  }
  Choice choice;
  TRY(choice.rules, device_rules({}));
  const SlotWork work = {
      slot_.get(), std::span<const int64_t>(tokens_).subspan(static_cast<size_t>(begin)), begin, 1, nullptr, &choice.rules, &choice.number, &choice.chances};
  const Status status = generator_->call({&work, 1});
  if (!status.ok()) return status.error().code == ErrorCode::input_value ? at_tokens(status.error(), begin, count) : status.error();
  processed_ = begin + count;
  return take_choice(choice.number, &choice.chances);
}

// The next token, by the logits of the last one; it is added.
Result<int64_t> Conversation::choose(std::span<float> logits) {
  std::vector<float> before;
  if (watched_ >= 0) before.assign(logits.begin(), logits.end());
  TRY(const int64_t token, sample(logits, tokens_, sampling_));
  tokens_.push_back(token);
  if (watched_ >= 0) chances_.push_back(chances_of(before, token, watched_));
  return token;
}

// Adds the tokens of steps behind a call whose last token was the one before `end`.
Status Conversation::made_ahead(const StepsAhead& ahead, int64_t end, std::span<const int64_t> stop, std::vector<int64_t>* made) {
  bool stopped = false;
  Status status = ok_status();
  for (size_t i = 0; i < ahead.numbers.size(); ++i) {
    const int64_t number = ahead.numbers[i];
    if (number == cd::kSampleFault) break;
    processed_ = std::min(end + static_cast<int64_t>(i), static_cast<int64_t>(tokens_.size()));
    if (number == cd::kSampleHalted || !status.ok()) continue;
    const Result<int64_t> token = take_choice(number, watched_ < 0 ? nullptr : &ahead.chances[i]);
    if (!token.ok()) {
      status = token.error();
      continue;
    }
    made->push_back(number);
    stopped = std::find(stop.begin(), stop.end(), number) != stop.end();
  }
  if (stopped || !status.ok()) return status;  // a step that nobody asked for may have failed
  if (ahead.status.ok() || ahead.status.error().code != ErrorCode::input_value) return ahead.status;
  return at_tokens(ahead.status.error(), static_cast<int64_t>(tokens_.size()) - 1, 1);
}

// generate() where the device chooses.
Result<std::vector<int64_t>> Conversation::generate_ahead(int64_t count, std::span<const int64_t> stop, int64_t steps) {
  std::vector<int64_t> made;
  if (steps <= 0) steps = stop.empty() ? Generator::kMostAhead : 1;
  if (sampling_.allow) steps = 1;  // the caller looks at each token
  while (static_cast<int64_t>(made.size()) < count) {
    TRY(const int64_t begin, process_front(1));
    if (generator_->takes_source() && !source_) return no_source();
    TRY(const CudaSample rules, device_rules(stop));
    const std::vector<int64_t> piece(tokens_.begin() + begin, tokens_.end());
    const int64_t most = std::min(steps, count - static_cast<int64_t>(made.size()));
    tokens_.reserve(tokens_.size() + static_cast<size_t>(most));
    const StepsAhead ahead = generator_->ahead(piece, begin, state_, source_.get(), rules, most);
    const Status status = made_ahead(ahead, static_cast<int64_t>(tokens_.size()), stop, &made);
    if (!status.ok()) rules_.forget();
    TRY_STATUS(status);
    if (!made.empty() && std::find(stop.begin(), stop.end(), made.back()) != stop.end()) return made;
  }
  return made;
}

// One call with at most `most` tokens that are not processed yet; -1 while some are left.
Result<int64_t> Conversation::advance(int64_t most) {
  const auto count = static_cast<int64_t>(tokens_.size());
  if (count == 0) return empty();
  const int64_t from = std::min(processed_, count - 1);
  if (!generator_->has_state() || count - from <= most) return next();
  const int64_t n = generator_->piece(std::min(most, count - from), 1);
  if (n == 0) return next();
  if (from + n == count) return process_and_choose(from);
  TRY_STATUS(process_piece(from, n, 0, nullptr));
  return -1;
}

// What one call is to do for it: at most `most` tokens, and where these are the last ones, the choice of the next one.
Result<SlotWork> Conversation::slot_work(int64_t most, Choice* choice) {
  const auto count = static_cast<int64_t>(tokens_.size()), from = std::min(processed_, count - 1), n = std::min({most, count - from, generator_->most()});
  SlotWork work = {slot_.get(), std::span<const int64_t>(tokens_).subspan(static_cast<size_t>(from), static_cast<size_t>(n)), from, 1, &logits_};
  if (from + n < count) {
    work.rows = 0, work.logits = nullptr;
  } else if (device_chooses()) {
    TRY(choice->rules, device_rules({}));
    work.logits = nullptr, work.rules = &choice->rules, work.number = &choice->number, work.chances = &choice->chances;
  }
  return work;
}

// Those of `members`, which are in one block: a single call, or one for each where that fails.
void Conversation::step_block(std::span<Conversation* const> all, int64_t most, std::span<const size_t> members, std::vector<Result<int64_t>>* results) {
  std::vector<SlotWork> works;
  std::vector<size_t> working;
  std::vector<Choice> choices(members.size());
  for (const size_t i : members) {
    auto work = all[i]->slot_work(most, &choices[working.size()]);
    if (!work.ok()) {
      (*results)[i] = work.error();
      continue;
    }
    works.push_back(work.value());
    working.push_back(i);
  }
  if (works.empty()) return;
  const Status status = all[working[0]]->generator_->call(works);
  for (size_t k = 0; k < working.size(); ++k) {
    Conversation& c = *all[working[k]];
    Result<int64_t>& result = (*results)[working[k]];
    const auto begin = works[k].begin, count = static_cast<int64_t>(works[k].tokens.size());
    if (!status.ok()) {
      c.rules_.forget();
      if (working.size() > 1 && status.error().code == ErrorCode::input_value) step_block(all, most, {&working[k], 1}, results);
      else result = status.error().code == ErrorCode::input_value ? at_tokens(status.error(), begin, count) : status.error();
      continue;
    }
    c.processed_ = begin + count;
    if (works[k].rules) result = c.take_choice(choices[k].number, &choices[k].chances);
    else if (works[k].rows > 0) result = c.choose(c.logits_);
  }
}

std::vector<Result<int64_t>> Conversation::step(std::span<Conversation* const> all, int64_t most) {
  std::vector<Result<int64_t>> results(all.size(), int64_t{-1});
  std::vector<std::pair<const SlotBlock*, std::vector<size_t>>> blocks;
  if (most <= 0) most = INT64_MAX;
  for (size_t i = 0; i < all.size(); ++i) {
    Conversation& c = *all[i];
    c.chances_.clear();
    if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), &c) != all.begin() + static_cast<std::ptrdiff_t>(i)) {
      results[i] = Error{ErrorCode::bad_option, "a conversation is there twice in a step", "", ""};
    } else if (c.tokens_.empty()) {
      results[i] = empty();
    } else if (!c.slot_) {
      results[i] = c.advance(most);
    } else {
      const auto same = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == &c.slot_->block(); });
      if (same == blocks.end()) blocks.push_back({&c.slot_->block(), {i}});
      else same->second.push_back(i);
    }
  }
  for (const auto& [block, members] : blocks) step_block(all, most, members, &results);
  return results;
}

}  // namespace coil::runtime
