#include "launch/tool_calls/json_scanner.hpp"

namespace paceline::serve {
namespace {

constexpr std::string_view kLiterals[] = {"true", "false", "null"};

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

JsonScanner::Step JsonScanner::push(char c) {
    switch (state_) {
        case State::Text:
        case State::Escape:
        case State::Hex:
            return text(c);
        case State::Number:
            return number(c);
        case State::Literal:
            if (c != literal_.front()) return Step::Bad;
            literal_.remove_prefix(1);
            return literal_.empty() ? ended() : Step::Inside;
        default:
            break;
    }
    if (is_json_space(c)) return Step::Inside;
    switch (state_) {
        case State::FirstElement:
            return c == ']' ? close(c) : value(c);
        case State::FirstKey:
        case State::Key:
            if (c == '}' && state_ == State::FirstKey) return close(c);
            if (c != '"') return Step::Bad;
            text_is_key_ = true;
            state_ = State::Text;
            return Step::Inside;
        case State::Colon:
            if (c != ':') return Step::Bad;
            state_ = State::Value;
            return Step::Inside;
        case State::AfterValue:
            return after_value(c);
        default:
            return value(c);
    }
}

JsonScanner::Step JsonScanner::value(char c) {
    if (c == '{' || c == '[') return open(c);
    if (c == '"') {
        text_is_key_ = false;
        state_ = State::Text;
        return Step::Inside;
    }
    if (c == '-' || is_digit(c)) {
        state_ = State::Number;
        digits_ = c == '-' ? Digits::Sign : c == '0' ? Digits::Zero : Digits::Whole;
        return Step::Inside;
    }
    for (const std::string_view literal : kLiterals) {
        if (c != literal.front()) continue;
        literal_ = literal.substr(1);
        state_ = State::Literal;
        return Step::Inside;
    }
    return Step::Bad;
}

JsonScanner::Step JsonScanner::open(char c) {
    if (open_.size() == kScannedDepthMax) return Step::Bad;
    open_ += c;
    state_ = c == '{' ? State::FirstKey : State::FirstElement;
    return Step::Inside;
}

JsonScanner::Step JsonScanner::close(char c) {
    if (open_.back() != (c == '}' ? '{' : '[')) return Step::Bad;
    open_.pop_back();
    return ended();
}

JsonScanner::Step JsonScanner::ended() {
    state_ = State::AfterValue;
    return open_.empty() ? Step::Ended : Step::Inside;
}

JsonScanner::Step JsonScanner::after_value(char c) {
    if (c == '}' || c == ']') return close(c);
    if (c != ',') return Step::Bad;
    state_ = open_.back() == '{' ? State::Key : State::Value;
    return Step::Inside;
}

JsonScanner::Step JsonScanner::text(char c) {
    if (state_ == State::Hex) {
        if (!is_hex(c)) return Step::Bad;
        if (--hex_left_ == 0) state_ = State::Text;
        return Step::Inside;
    }
    if (state_ == State::Escape) {
        constexpr std::string_view kEscaped = "\"\\/bfnrtu";
        if (kEscaped.find(c) == kEscaped.npos) return Step::Bad;
        state_ = c == 'u' ? State::Hex : State::Text;
        hex_left_ = 4;
        return Step::Inside;
    }
    if (c == '\\') state_ = State::Escape;
    if (c != '"') return Step::Inside;
    if (!text_is_key_) return ended();
    state_ = State::Colon;
    return Step::Inside;
}

/// The byte behind a number ends it, and belongs to what is around it.
JsonScanner::Step JsonScanner::number(char c) {
    const bool whole = digits_ == Digits::Zero || digits_ == Digits::Whole;
    const bool complete = whole || digits_ == Digits::Fraction || digits_ == Digits::Exponent;
    const bool before_e = whole || digits_ == Digits::Fraction;
    if (is_digit(c) && digits_ != Digits::Zero) {
        if (digits_ == Digits::Sign) digits_ = c == '0' ? Digits::Zero : Digits::Whole;
        if (digits_ == Digits::Dot) digits_ = Digits::Fraction;
        if (digits_ == Digits::E || digits_ == Digits::ESign) digits_ = Digits::Exponent;
        return Step::Inside;
    }
    if (c == '.' && whole) {
        digits_ = Digits::Dot;
        return Step::Inside;
    }
    if ((c == 'e' || c == 'E') && before_e) {
        digits_ = Digits::E;
        return Step::Inside;
    }
    if ((c == '+' || c == '-') && digits_ == Digits::E) {
        digits_ = Digits::ESign;
        return Step::Inside;
    }
    if (!complete) return Step::Bad;
    state_ = State::AfterValue;
    if (open_.empty()) return Step::EndedBefore;
    return is_json_space(c) ? Step::Inside : after_value(c);
}

}  // namespace paceline::serve
