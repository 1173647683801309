#include "launch/tool_calls/call_object.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace paceline::serve {
namespace {

/// A JSON text's string; false: it is none.
bool read_string(const std::string& text, std::string& value) {
    const nlohmann::json read = nlohmann::json::parse(text, nullptr, false);
    if (!read.is_string()) return false;
    value = read.get<std::string>();
    return true;
}

/// `text` is an object in JSON.
bool is_object(const std::string& text) {
    JsonScanner scanner;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const JsonScanner::Step step = scanner.push(text[i]);
        if (step == JsonScanner::Step::Inside) continue;
        const std::size_t rest = text.find_first_not_of(" \t\r\n", i + 1);
        return step == JsonScanner::Step::Ended && text[i] == '}' && rest == text.npos;
    }
    return false;
}

}  // namespace

CallObject CallObject::with_name(std::string name) {
    CallObject call;
    call.name_ = std::move(name);
    call.named_ = true;
    call.arguments_alone_ = true;
    call.member_ = Member::Arguments;
    call.begin_value();
    return call;
}

bool CallObject::known(const std::string& name) const {
    return !strict_ || std::find(names_.begin(), names_.end(), name) != names_.end();
}

void CallObject::begin_value() {
    state_ = State::Value;
    scanner_ = {};
    kept_.clear();
    streams_ = false;
}

/// False: no key of an object.
bool CallObject::in_key(char c) {
    kept_ += c;
    const JsonScanner::Step step = scanner_.push(c);
    if (step == JsonScanner::Step::Bad) return false;
    if (step != JsonScanner::Step::Ended) return true;
    std::string key;
    if (!read_string(kept_, key)) return false;
    const bool arguments = key == "arguments" || key == "parameters";
    member_ = key == "name" ? Member::Name : arguments ? Member::Arguments : Member::Other;
    // A second one would be another call.
    if ((member_ == Member::Name && named_) || (arguments && has_arguments_)) return false;
    state_ = State::Colon;
    return true;
}

CallObject::Step CallObject::push(char c, ReplyEvents& events) {
    if (state_ == State::Value) return value(c, events);
    if (state_ == State::InKey) return in_key(c) ? Step::Inside : Step::Bad;
    if (is_json_space(c)) return Step::Inside;
    switch (state_) {
        case State::Open:
            state_ = State::FirstKey;
            return c == '{' ? Step::Inside : Step::Bad;
        case State::Colon:
            begin_value();
            return c == ':' ? Step::Inside : Step::Bad;
        case State::AfterValue:
            if (c == '}') return object_ended(events);
            state_ = State::Key;
            return c == ',' ? Step::Inside : Step::Bad;
        default:
            if (c != '"') return Step::Bad;  // an object without members is no call
            scanner_ = {};
            kept_.clear();
            state_ = State::InKey;
            return in_key(c) ? Step::Inside : Step::Bad;
    }
}

CallObject::Step CallObject::value(char c, ReplyEvents& events) {
    if (kept_.empty() && !streams_ && is_json_space(c)) return Step::Inside;
    if (member_ == Member::Arguments && kept_.empty() && !streams_) {
        // The value's first byte.
        if (c != '{' && (c != '"' || arguments_alone_) && (c != 'n' || arguments_alone_))
            return Step::Bad;
        streams_ = c == '{' && named_;
        if (streams_) begin_call(events);
    }
    const bool raw = scanner_.in_string() && static_cast<unsigned char>(c) < 0x20;
    const JsonScanner::Step step = scanner_.push(c);
    if (step == JsonScanner::Step::Bad) return Step::Bad;
    if (step == JsonScanner::Step::EndedBefore) {
        const Step ended = value_ended(events);
        return ended == Step::Inside ? push(c, events) : ended;
    }
    if (raw) {
        constexpr std::string_view kHex = "0123456789abcdef";
        const auto code = static_cast<unsigned char>(c);
        const char escaped[] = {'\\', 'u', '0', '0', kHex[code >> 4U], kHex[code & 15U]};
        for (const char each : escaped) take(each, events);
    } else {
        take(c, events);
    }
    return step == JsonScanner::Step::Ended ? value_ended(events) : Step::Inside;
}

void CallObject::take(char c, ReplyEvents& events) {
    if (streams_) {
        events.add(ReplyPart::Arguments, {&c, 1});
    } else {
        kept_ += c;
    }
}

void CallObject::begin_call(ReplyEvents& events) {
    begun_ = true;
    events.add(ReplyPart::CallBegin, name_);
}

void CallObject::finish(ReplyEvents& events) {
    if (begun_ && !std::exchange(ended_, true)) events.add(ReplyPart::CallEnd, {});
}

CallObject::Step CallObject::value_ended(ReplyEvents& events) {
    state_ = State::AfterValue;
    if (member_ == Member::Name) {
        if (!read_string(kept_, name_) || name_.empty() || !known(name_)) return Step::Bad;
        named_ = true;
    } else if (member_ == Member::Arguments) {
        has_arguments_ = true;
        if (streams_) {
            finish(events);
            return arguments_alone_ ? Step::Ended : Step::Inside;
        }
        if (kept_ == "null") kept_ = "{}";
        arguments_ = kept_;
        if (kept_.front() == '"') {
            if (!read_string(kept_, arguments_) || !is_object(arguments_)) return Step::Bad;
            arguments_.erase(0, arguments_.find('{'));
            arguments_.erase(arguments_.rfind('}') + 1);
        }
    }
    if (!named_ || !has_arguments_ || begun_) return Step::Inside;
    begin_call(events);
    events.add(ReplyPart::Arguments, arguments_);
    finish(events);
    return Step::Inside;
}

CallObject::Step CallObject::object_ended(ReplyEvents& events) {
    if (!named_ || (strict_ && !has_arguments_)) return Step::Bad;
    if (!has_arguments_) {
        begin_call(events);
        events.add(ReplyPart::Arguments, "{}");
        finish(events);
    }
    return Step::Ended;
}

}  // namespace paceline::serve
