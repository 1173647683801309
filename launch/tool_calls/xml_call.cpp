#include "launch/tool_calls/xml_call.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "launch/tool_calls/json_scanner.hpp"

namespace paceline::serve {
namespace {

constexpr std::size_t kNameBytesMax = 256;
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kFunctionEnds = "</function>";
constexpr std::string_view kCallEnds = "</tool_call>";
constexpr std::string_view kParameterEnds = "</parameter>";
constexpr std::string_view kLineAndEnd = "\n</parameter>";

/// A byte of a text inside a JSON string.
std::string escaped(char c) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') return {'\\', c};
    if (c == '\n') return "\\n";
    if (c == '\t') return "\\t";
    if (code >= 0x20) return {c};
    return {'\\', 'u', '0', '0', kHex[code >> 4U], kHex[code & 15U]};
}

std::string escaped(std::string_view text) {
    std::string all;
    for (const char c : text) all += escaped(c);
    return all;
}

std::string in_quotes(std::string_view text) {
    return "\"" + escaped(text) + "\"";
}

std::string_view without_blanks(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// The JSON value that `text`, without blanks around it, spells, if it does.
std::optional<std::string> spelled_value(std::string_view text) {
    if (text == "True") return "true";
    if (text == "False") return "false";
    if (text == "None") return "null";
    JsonScanner scanner;
    std::string value;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool raw = scanner.in_string() && static_cast<unsigned char>(text[i]) < 0x20;
        const JsonScanner::Step step = scanner.push(text[i]);
        value += raw ? escaped(text[i]) : std::string{text[i]};
        if (step == JsonScanner::Step::Inside) continue;
        if (step == JsonScanner::Step::Ended && i + 1 == text.size()) return value;
        return {};
    }
    // A number ends before what follows it.
    if (!text.empty() && scanner.push(' ') == JsonScanner::Step::EndedBefore) return value;
    return {};
}

bool holds(const std::vector<std::string>& list, const std::string& text) {
    return std::find(list.begin(), list.end(), text) != list.end();
}

bool is_tag_name_byte(char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '<' && c != '"' && c != '\x7f';
}

/// The keys of a JSON object may have nearly any; these end or break a tag.
bool is_key_byte(char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '<' && c != '>' && c != '\x7f';
}

}  // namespace

XmlCall XmlCall::behind_tag(const ReplyFormat& format) {
    XmlCall call{format};
    call.known_alone_ = true;
    call.state_ = State::Name;
    return call;
}

XmlCall::Step XmlCall::push(char c, ReplyEvents& events) {
    switch (state_) {
        case State::Name:
            return name(c, events);
        case State::Body:
            return body(c, events);
        case State::Key:
            return key(c, events);
        case State::Value:
            value(c, events);
            return Step::Inside;
        default:
            break;
    }
    tag_ += c;
    if (!kFunction.starts_with(tag_)) return Step::Bad;
    if (tag_ == kFunction) {
        tag_.clear();
        state_ = State::Name;
    }
    return Step::Inside;
}

XmlCall::Step XmlCall::name(char c, ReplyEvents& events) {
    if (c != '>') {
        if (!is_tag_name_byte(c) || name_.size() >= kNameBytesMax) return Step::Bad;
        name_ += c;
        return Step::Inside;
    }
    if (name_.empty() || (known_alone_ && !holds(format_->names, name_))) return Step::Bad;
    begun_ = true;
    state_ = State::Body;
    events.add(ReplyPart::CallBegin, name_);
    events.add(ReplyPart::Arguments, "{");
    return Step::Inside;
}

/// Between parameters.
XmlCall::Step XmlCall::body(char c, ReplyEvents& events) {
    if (tag_.empty() && is_json_space(c)) return Step::Inside;
    tag_ += c;
    if (tag_ == kParameter) {
        tag_.clear();
        key_.clear();
        state_ = State::Key;
    } else if (tag_ == kFunctionEnds || tag_ == kCallEnds) {
        tag_.clear();
        events.add(ReplyPart::Arguments, "}");
        finish(events);
        return Step::Ended;
    } else if (!kParameter.starts_with(tag_) && !kFunctionEnds.starts_with(tag_) &&
               !kCallEnds.starts_with(tag_)) {
        return Step::Bad;
    }
    return Step::Inside;
}

XmlCall::Step XmlCall::key(char c, ReplyEvents& events) {
    if (c != '>' || key_.empty()) {
        if (is_key_byte(c) && key_.size() < kNameBytesMax) {
            key_ += c;
            return Step::Inside;
        }
        tag_ = std::string{kParameter} + key_ + c;
        return Step::Bad;
    }
    events.add(ReplyPart::Arguments,
               (std::exchange(has_parameter_, true) ? ", " : "") + in_quotes(key_) + ": ");
    find_kind(key_);
    if (at_once()) events.add(ReplyPart::Arguments, "\"");
    value_.clear();
    at_line_break_ = true;
    state_ = State::Value;
    return Step::Inside;
}

void XmlCall::find_kind(const std::string& parameter) {
    kind_ = Kind::Json;
    may_be_null_ = false;
    for (const ParameterTexts& tool : format_->parameters) {
        if (tool.tool != name_) continue;
        if (holds(tool.texts, parameter)) kind_ = Kind::Text;
        if (holds(tool.words, parameter)) kind_ = Kind::Word;
        may_be_null_ = holds(tool.nullable, parameter);
        return;
    }
}

/// What may be the tag that ends the value is held back, with a line break in front of it.
void XmlCall::value(char c, ReplyEvents& events) {
    tag_ += c;
    while (!tag_.empty()) {
        if (tag_ == kParameterEnds || tag_ == kLineAndEnd) {
            tag_.clear();
            return value_ended(events);
        }
        if (kParameterEnds.starts_with(tag_) || kLineAndEnd.starts_with(tag_)) return;
        take(tag_.front(), events);
        tag_.erase(0, 1);
    }
}

void XmlCall::take(char c, ReplyEvents& events) {
    if (std::exchange(at_line_break_, false) && c == '\n') return;
    if (at_once()) return events.add(ReplyPart::Arguments, escaped(c));
    value_ += c;
    if (value_.size() <= kWaitingValueBytesMax) return;
    kind_ = Kind::Text;  // too long to wait for its end
    may_be_null_ = false;
    events.add(ReplyPart::Arguments, "\"" + escaped(value_));
    value_.clear();
}

void XmlCall::value_ended(ReplyEvents& events) {
    state_ = State::Body;
    if (at_once()) return events.add(ReplyPart::Arguments, "\"");
    const std::string_view value = without_blanks(value_);
    std::optional<std::string> json;
    if (kind_ == Kind::Json) json = spelled_value(value);
    if (may_be_null_ && (value == "null" || value == "None")) json = "null";
    if (!json) json = in_quotes(kind_ == Kind::Word ? value : std::string_view{value_});
    events.add(ReplyPart::Arguments, *json);
}

void XmlCall::finish(ReplyEvents& events) {
    if (begun_ && !std::exchange(ended_, true)) events.add(ReplyPart::CallEnd, {});
}

}  // namespace paceline::serve
