#include "ipc/base/utf8.hpp"

#include <cstring>

namespace paceline::utf8 {
namespace {

/// What a lead byte announces; the second byte's range closes overlong forms and surrogates.
struct Lead {
    std::uint8_t bytes;  // 0: not a lead byte
    std::uint8_t second_min, second_max;
};

Lead lead_of(std::uint8_t byte) {
    if (byte < 0xC2) return {0, 0, 0};
    if (byte < 0xE0) return {2, 0x80, 0xBF};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte < 0xF0) return {3, 0x80, 0xBF};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4, 0x80, 0xBF};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {0, 0, 0};
}

}  // namespace

Step first(std::string_view text) {
    const auto byte = static_cast<std::uint8_t>(text[0]);
    if (byte < 0x80) return {Form::Whole, 1, byte};
    const Lead lead = lead_of(byte);
    if (lead.bytes == 0) return {Form::Invalid, 1, 0};
    char32_t code = byte & (0x7FU >> lead.bytes);
    for (std::uint8_t i = 1; i < lead.bytes; ++i) {
        if (i == text.size()) return {Form::Unfinished, i, 0};
        const auto next = static_cast<std::uint8_t>(text[i]);
        const std::uint8_t low = i == 1 ? lead.second_min : 0x80;
        const std::uint8_t high = i == 1 ? lead.second_max : 0xBF;
        if (next < low || next > high) return {Form::Invalid, i, 0};
        code = code << 6 | (next & 0x3FU);
    }
    return {Form::Whole, lead.bytes, code};
}

void append(std::string& out, char32_t code) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
        return;
    }
    if (code < 0x800) {
        put(0xC0 | code >> 6);
    } else {
        if (code < 0x10000) {
            put(0xE0 | code >> 12);
        } else {
            put(0xF0 | code >> 18);
            put(0x80 | (code >> 12 & 0x3F));
        }
        put(0x80 | (code >> 6 & 0x3F));
    }
    put(0x80 | (code & 0x3F));
}

std::size_t valid_prefix(std::string_view text) {
    constexpr std::uint64_t kHighBits = 0x8080808080808080;
    std::size_t at = 0;
    while (at < text.size()) {
        std::uint64_t word = 0;
        if (at + sizeof word <= text.size()) {
            std::memcpy(&word, text.data() + at, sizeof word);
            if ((word & kHighBits) == 0) {
                at += sizeof word;
                continue;
            }
        }
        const Step step = first(text.substr(at));
        if (step.form != Form::Whole) break;
        at += step.bytes;
    }
    return at;
}

std::string_view without_mark(std::string_view text) {
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    return text;
}

std::string replace_invalid(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t valid = valid_prefix(text);
        out.append(text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) break;
        out.append(kReplacement);
        text.remove_prefix(first(text).bytes);
    }
    return out;
}

}  // namespace paceline::utf8
