#include "launch/tool_calls/call_reader.hpp"

#include <algorithm>

namespace paceline::serve {
namespace {

constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";

bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
}

}  // namespace

CallReader::CallReader(const ReplyFormat& format)
    : format_{format},
      syntax_{syntax_of(format.tools)},
      state_{syntax_.bare ? State::Start : State::Text} {}

void CallReader::push(std::string_view text, ReplyEvents& events) {
    todo_.assign(text);
    at_ = 0;
    run(events);
}

void CallReader::run(ReplyEvents& events) {
    while (at_ < todo_.size()) {
        const char c = todo_[at_++];
        step(c, events);
    }
    todo_.clear();
    at_ = 0;
}

void CallReader::finish(ReplyEvents& events) {
    while (state_ != State::Start && state_ != State::Text) {
        if (call_.begun() || xml_.begun()) {
            end_call(events);
            state_ = State::Text;
        } else if (state_ == State::After || state_ == State::Closing) {
            state_ = State::Text;  // blanks, or a part of the tag that closes
        } else {
            give_up(events);
            run(events);
        }
    }
    if (!after_call_) emit({}, events);
    space_.clear();
}

bool CallReader::opens_with(std::string_view text, bool whole) const {
    const auto fits = [&](std::string_view tag) {
        return whole ? tag == text : tag.starts_with(text);
    };
    for (const std::string_view tag : syntax_.opens) {
        if (fits(tag)) return true;
    }
    return at_start_ && !syntax_.open_at_start.empty() && fits(syntax_.open_at_start);
}

/// Text, behind the blanks that wait for it.
void CallReader::emit(std::string_view text, ReplyEvents& events) {
    if (after_call_ && !has_text_) space_.clear();
    events.add(ReplyPart::Text, space_);
    events.add(ReplyPart::Text, text);
    space_.clear();
    if (text.empty()) return;
    has_text_ = true;
    after_call_ = false;
    at_start_ = false;
}

void CallReader::step(char c, ReplyEvents& events) {
    if (state_ == State::Start) {
        if (is_json_space(c)) {
            space_ += c;
            return;
        }
        bare_ = c == '{' || c == '[';
        state_ = bare_ ? State::Lead : State::Text;
        held_.clear();
    }
    if (state_ == State::Text) return text(c, events);
    held_ += c;
    if (held_.size() > kHeldBytesMax && !call_.begun() && !xml_.begun()) return give_up(events);
    switch (state_) {
        case State::Marker:
            return marker(events);
        case State::Lead:
        case State::Item:
            return lead(c, events);
        case State::Object:
        case State::Arguments:
            return object(c, events);
        case State::Xml:
            return xml(c, events);
        case State::After:
            return after(c);
        case State::Closing:
            return closing();
        default:
            return name(c, events);
    }
}

void CallReader::text(char c, ReplyEvents& events) {
    if (is_json_space(c)) {
        space_ += c;
    } else if (opens_with({&c, 1}, false)) {
        bare_ = false;
        held_ = c;
        state_ = State::Marker;
    } else {
        emit({&c, 1}, events);
    }
}

void CallReader::marker(ReplyEvents& events) {
    if (syntax_.tags && held_ == "<function=") {
        xml_ = XmlCall::behind_tag(format_);
        state_ = State::Xml;
    } else if (opens_with(held_, true)) {
        state_ = State::Lead;
    } else if (!opens_with(held_, false)) {
        give_up(events);
    }
}

void CallReader::begin_object(ReplyEvents& events, char c) {
    call_ = bare_ ? CallObject{format_.names} : CallObject{};
    state_ = State::Object;
    object(c, events);
}

void CallReader::lead(char c, ReplyEvents& events) {
    if (is_json_space(c)) return;
    if (c == '{') return begin_object(events, c);
    if (c == '<' && syntax_.tags && state_ == State::Lead) {
        xml_ = XmlCall{format_};
        state_ = State::Xml;
        return xml(c, events);
    }
    if (c == '[' && state_ == State::Lead) {
        list_ = true;
        state_ = State::Item;
        return;
    }
    if (syntax_.named && state_ == State::Lead && is_name_byte(c)) {
        name_ = c;
        state_ = State::Name;
        return;
    }
    give_up(events);
}

void CallReader::call_begun() {
    after_call_ = true;
    at_start_ = false;
    space_.clear();
    held_.clear();
}

void CallReader::end_call(ReplyEvents& events) {
    call_.finish(events);
    xml_.finish(events);
    call_ = {};
    xml_ = {};
}

void CallReader::object(char c, ReplyEvents& events) {
    const CallObject::Step step = call_.push(c, events);
    if (call_.begun()) call_begun();
    if (step == CallObject::Step::Ended) {
        state_ = State::After;
        call_ = {};
        if (!list_ && syntax_.close.empty() && !syntax_.more) state_ = State::Text;
    } else if (step == CallObject::Step::Bad && !call_.begun()) {
        give_up(events);
    } else if (step == CallObject::Step::Bad) {
        end_call(events);
        held_ = c;
        read_again_as_text();
    }
}

void CallReader::xml(char c, ReplyEvents& events) {
    const XmlCall::Step step = xml_.push(c, events);
    if (xml_.begun()) call_begun();
    if (step == XmlCall::Step::Ended) {
        state_ = State::After;
        xml_ = {};
    } else if (step == XmlCall::Step::Bad && !xml_.begun()) {
        give_up(events);
    } else if (step == XmlCall::Step::Bad) {
        held_ = xml_.unread();
        end_call(events);
        read_again_as_text();
    }
}

/// Behind an object: the next one of a list, the end of the list, a tag that closes, one more.
void CallReader::after(char c) {
    if (is_json_space(c)) return;
    if (list_) {
        if (c == ',') {
            held_.clear();
            state_ = State::Item;
        } else if (c == ']') {
            held_.clear();
            list_ = false;
            state_ = syntax_.close.empty() ? State::Text : State::After;
        } else {
            read_again_as_text();
        }
        return;
    }
    if (!syntax_.close.empty() && c == syntax_.close.front()) {
        state_ = State::Closing;
        closing();
    } else if (syntax_.more && (c == ';' || c == ',' || c == '{')) {
        state_ = State::Item;
        if (c == '{') {
            --at_;  // as the first byte of an object
            held_.pop_back();
        }
    } else {
        read_again_as_text();
    }
}

void CallReader::closing() {
    const std::size_t begin = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    const std::string_view tag = std::string_view{held_}.substr(begin);
    if (tag == syntax_.close) {
        held_.clear();
        state_ = State::Text;
    } else if (!syntax_.close.starts_with(tag)) {
        read_again_as_text();
    }
}

void CallReader::name(char c, ReplyEvents& events) {
    if (state_ == State::NameTag) {
        name_tag(c);
        if (state_ == State::Name) give_up(events);  // neither of the tags
        return;
    }
    if (state_ == State::CallId) {
        if (c == '[') {
            tag_ = c;
            state_ = State::NameTag;
        } else if (!is_name_byte(c)) {
            give_up(events);
        }
        return;
    }
    if (is_name_byte(c) && name_.size() < kToolNameBytesMax) {
        name_ += c;
    } else if (c == '[') {
        tag_ = c;
        state_ = State::NameTag;
    } else if (c == '{') {
        call_ = CallObject::with_name(name_);
        state_ = State::Arguments;
        object(c, events);
    } else {
        give_up(events);
    }
}

void CallReader::name_tag(char c) {
    tag_ += c;
    if (tag_ == kArgs) {
        call_ = CallObject::with_name(name_);
        state_ = State::Arguments;
    } else if (tag_ == kCallId) {
        state_ = State::CallId;
    } else if (!kArgs.starts_with(tag_) && !kCallId.starts_with(tag_)) {
        state_ = State::Name;
    }
}

/// What is held is no call: its first byte is text, the rest is read again.
void CallReader::give_up(ReplyEvents& events) {
    const std::size_t begin = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
    space_ += held_.substr(0, begin);
    const std::string rest = held_.substr(begin);
    held_ = rest.empty() ? rest : rest.substr(1);
    if (!rest.empty()) emit({rest.data(), 1}, events);
    call_ = {};
    xml_ = {};
    read_again_as_text();
}

void CallReader::read_again_as_text() {
    todo_.replace(0, at_, held_);
    at_ = 0;
    held_.clear();
    bare_ = false;
    list_ = false;
    state_ = State::Text;
}

}  // namespace paceline::serve
