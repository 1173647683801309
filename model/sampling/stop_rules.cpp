#include "model/sampling/stop_rules.hpp"

#include <algorithm>
#include <utility>

#include <spdlog/fmt/fmt.h>

namespace paceline {

namespace {

/// Bytes of the character that `lead` begins, 0 where none begins with it.
std::size_t character_bytes(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

/// Whether `text` is cut into characters as UTF-8 is: enough for a match to start and end
/// between two characters.
bool is_cut_as_utf8(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t bytes = character_bytes(static_cast<unsigned char>(text[at]));
        if (bytes == 0 || at + bytes > text.size()) return false;
        for (std::size_t i = 1; i < bytes; ++i) {
            if ((static_cast<unsigned char>(text[at + i]) & 0xC0U) != 0x80U) return false;
        }
        at += bytes;
    }
    return true;
}

std::vector<std::size_t> borders_of(const std::string& text) {
    std::vector<std::size_t> border(text.size(), 0);
    std::size_t length = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
        while (length > 0 && text[i] != text[length]) length = border[length - 1];
        if (text[i] == text[length]) ++length;
        border[i] = length;
    }
    return border;
}

}  // namespace

Status validate(const StopRules& rules) {
    if (rules.stop_strings.size() > kStopStringsMax) {
        return Error{Errc::BadArgument,
                     fmt::format("there are {} stop strings, allowed are at most {}",
                                 rules.stop_strings.size(), kStopStringsMax)};
    }
    for (std::size_t i = 0; i < rules.stop_strings.size(); ++i) {
        const std::string& text = rules.stop_strings[i];
        if (text.empty()) {
            return Error{
                Errc::BadArgument,
                fmt::format("stop string {} is empty: it would end every answer at once", i)};
        }
        if (text.size() > kStopStringBytesMax) {
            return Error{Errc::BadArgument,
                         fmt::format("stop string {} has {} bytes, allowed are at most {}", i,
                                     text.size(), kStopStringBytesMax)};
        }
        if (!is_cut_as_utf8(text)) {
            return Error{Errc::BadArgument, fmt::format("stop string {} is not valid UTF-8", i)};
        }
    }
    if (rules.max_tokens != -1 && rules.max_tokens < 1) {
        return Error{Errc::BadArgument,
                     fmt::format("max_tokens is {}, allowed is -1 (no limit) or 1 and more",
                                 rules.max_tokens)};
    }
    return {};
}

StopMatcher::StopMatcher(StopRules rules) : rules_{std::move(rules)} {
    std::sort(rules_.end_tokens.begin(), rules_.end_tokens.end());
    for (const std::string& text : rules_.stop_strings) {
        PACE_CHECK(!text.empty(), "stop strings have passed validate()");
        patterns_.push_back({.text = text, .border = borders_of(text)});
    }
}

StopMatcher::Step StopMatcher::push(TokenId token, std::string_view text) {
    PACE_CHECK(reason_ == StopReason::None && !finished_, "the answer has not ended");
    ++tokens_;
    if (std::binary_search(rules_.end_tokens.begin(), rules_.end_tokens.end(), token)) {
        reason_ = StopReason::EndToken;
        return {.text = {}, .reason = reason_};
    }
    std::string certain = read(text);
    if (reason_ == StopReason::None && rules_.max_tokens > 0 && tokens_ >= rules_.max_tokens) {
        reason_ = StopReason::MaxTokens;
    }
    return {.text = std::move(certain), .reason = reason_};
}

std::string StopMatcher::finish(std::string_view rest) {
    PACE_CHECK(!finished_, "finish() is called once");
    finished_ = true;
    if (reason_ == StopReason::StopString) return {};
    std::string certain = read(rest);
    if (reason_ != StopReason::StopString) certain += release(held_.size());
    return certain;
}

std::string StopMatcher::read(std::string_view text) {
    for (const char byte : text) {
        held_.push_back(byte);
        std::size_t found = 0;
        for (Pattern& pattern : patterns_) {
            std::size_t& matched = pattern.matched;
            while (matched > 0 && pattern.text[matched] != byte) {
                matched = pattern.border[matched - 1];
            }
            if (pattern.text[matched] == byte) ++matched;
            if (matched == pattern.text.size()) found = std::max(found, matched);
        }
        if (found > 0) {
            std::string certain = release(held_.size() - found);
            held_.clear();
            reason_ = StopReason::StopString;
            return certain;
        }
    }
    std::size_t possible = 0;
    for (const Pattern& pattern : patterns_) possible = std::max(possible, pattern.matched);
    return release(held_.size() - possible);
}

std::string StopMatcher::release(std::size_t bytes) {
    std::string certain = held_.substr(0, bytes);
    held_.erase(0, bytes);
    return certain;
}

}  // namespace paceline
