#include "model/sampling/stop_matcher.hpp"

#include <algorithm>

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

Status validate_stop_strings(std::span<const std::string> stop_strings) {
    if (stop_strings.size() > kStopStringsMax) {
        return Error{Errc::BadArgument,
                     fmt::format("there are {} stop strings, allowed are at most {}",
                                 stop_strings.size(), kStopStringsMax)};
    }
    for (std::size_t i = 0; i < stop_strings.size(); ++i) {
        const std::string& text = stop_strings[i];
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
    return {};
}

StopMatcher::StopMatcher(std::span<const std::string> stop_strings) {
    for (const std::string& text : stop_strings) {
        PACE_CHECK(!text.empty(), "stop strings have passed validate_stop_strings()");
        patterns_.push_back({.text = text, .border = borders_of(text)});
    }
}

std::string StopMatcher::push(std::string_view text) {
    PACE_CHECK(!found_ && !finished_, "the answer has not ended");
    return read(text);
}

std::string StopMatcher::finish(std::string_view rest) {
    PACE_CHECK(!finished_, "finish() is called once");
    finished_ = true;
    if (found_) return {};
    std::string certain = read(rest);
    if (!found_) certain += release(held_.size());
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
            found_ = true;
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
