#include "launch/tool_calls/thought_split.hpp"

#include "launch/tool_calls/json_scanner.hpp"

namespace paceline::serve {

void ThoughtSplit::push(char c, ReplyEvents& events, std::string& text) {
    if (state_ == State::Start) return start(c, text);
    if (state_ == State::Thought) return thought(c, events);
    if (state_ == State::Behind && is_json_space(c)) return;
    state_ = State::Text;
    text += c;
}

void ThoughtSplit::start(char c, std::string& text) {
    if (tag_.empty() && is_json_space(c)) {
        space_ += c;
        return;
    }
    tag_ += c;
    if (tag_ == kThoughtOpens) {
        state_ = State::Thought;
        tag_.clear();
        space_.clear();
    } else if (!kThoughtOpens.starts_with(tag_)) {
        state_ = State::Text;
        text += space_ + tag_;
        tag_.clear();
        space_.clear();
    }
}

void ThoughtSplit::thought(char c, ReplyEvents& events) {
    const auto say = [&](std::string_view said) {
        events.add(ReplyPart::Thought, space_);
        events.add(ReplyPart::Thought, said);
        space_.clear();
        has_thought_ = true;
    };
    tag_ += c;
    if (tag_ == kThoughtCloses) {
        state_ = State::Behind;
        tag_.clear();
        space_.clear();
        return;
    }
    if (kThoughtCloses.starts_with(tag_)) return;
    // The tag begins with the only "<" that it has.
    tag_.pop_back();
    if (!tag_.empty()) say(tag_);
    tag_.clear();
    if (c == '<') {
        tag_ = c;
    } else if (is_json_space(c)) {
        if (has_thought_) space_ += c;
    } else {
        say({&c, 1});
    }
}

void ThoughtSplit::finish(ReplyEvents& events, std::string& text) {
    if (state_ == State::Start) text += space_ + tag_;
    if (state_ == State::Thought && !tag_.empty()) {
        events.add(ReplyPart::Thought, space_);
        events.add(ReplyPart::Thought, tag_);
    }
    tag_.clear();
    space_.clear();
}

}  // namespace paceline::serve
