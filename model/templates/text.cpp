#include "model/templates/text.hpp"

#include "ipc/base/utf8.hpp"
#include "model/templates/characters.hpp"

namespace paceline::jinja {
namespace {

std::size_t bytes_at(std::string_view text, std::size_t at) {
    return utf8::first(text.substr(at)).bytes;
}

bool is_line_end(char32_t code) {
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

bool is_among(std::string_view character, std::string_view characters) {
    if (characters.empty()) return is_white_space(utf8::first(character).code);
    for (std::size_t at = 0; at < characters.size(); at += bytes_at(characters, at)) {
        if (characters.substr(at, bytes_at(characters, at)) == character) return true;
    }
    return false;
}

std::size_t last_start(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
    return at;
}

}  // namespace

std::vector<std::size_t> character_starts(std::string_view text) {
    std::vector<std::size_t> starts;
    for (std::size_t at = 0; at < text.size(); at += bytes_at(text, at)) starts.push_back(at);
    starts.push_back(text.size());
    return starts;
}

std::size_t count_characters(std::string_view text) {
    std::size_t count = 0;
    for (const char byte : text) {
        if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80U) ++count;
    }
    return count;
}

Text stripped(const Text& text, Ends ends, std::string_view characters) {
    const std::string_view bytes = text.bytes();
    std::size_t begin = 0, end = bytes.size();
    if (ends != Ends::Right) {
        while (begin < end && is_among(bytes.substr(begin, bytes_at(bytes, begin)), characters))
            begin += bytes_at(bytes, begin);
    }
    if (ends != Ends::Left) {
        while (end > begin) {
            const std::size_t last = last_start(bytes.substr(0, end));
            if (!is_among(bytes.substr(last, end - last), characters)) break;
            end = last;
        }
    }
    return text.sub(begin, end - begin);
}

std::vector<Text> split_lines(const Text& text) {
    const std::string_view bytes = text.bytes();
    std::vector<Text> lines;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const utf8::Step step = utf8::first(bytes.substr(at));
        std::size_t next = at + step.bytes;
        if (is_line_end(step.code)) {
            lines.push_back(text.sub(begin, at - begin));
            if (step.code == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
            begin = next;
        }
        at = next;
    }
    if (begin < bytes.size()) lines.push_back(text.sub(begin));
    return lines;
}

std::vector<Text> split_blanks(const Text& text, long long splits_max) {
    std::vector<Text> parts;
    Text rest = stripped(text, Ends::Left);
    while (!rest.empty()) {
        const std::string_view bytes = rest.bytes();
        std::size_t end = 0;
        while (end < bytes.size() && !is_white_space(utf8::first(bytes.substr(end)).code))
            end += bytes_at(bytes, end);
        const bool last = splits_max >= 0 && parts.size() == static_cast<std::size_t>(splits_max);
        if (last) {
            parts.push_back(stripped(rest, Ends::Right));
            break;
        }
        parts.push_back(rest.sub(0, end));
        rest = stripped(rest.sub(end), Ends::Left);
    }
    return parts;
}

Text in_case(const Text& text, Case wanted) {
    Text changed;
    const std::string_view bytes = text.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
        const utf8::Step step = utf8::first(bytes.substr(at));
        changed.append(character_in_case(step.code, wanted), text.origin(at));
        at += step.bytes;
    }
    return changed;
}

}  // namespace paceline::jinja
