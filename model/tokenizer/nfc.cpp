// The algorithm is Unicode's (UAX 15): decompose, order the marks, compose. Hangul syllables
// are computed (chapter 3.12), all else is looked up in the tables of unicode_tables.cpp.
#include "model/tokenizer/nfc.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "ipc/base/utf8.hpp"
#include "model/tokenizer/unicode_tables.hpp"

namespace paceline::unicode {
namespace {

constexpr char32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTrailBase = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTrails = 28, kSyllables = kLeads * kVowels * kTrails;

struct Char {
    char32_t code;
    std::uint8_t combining_class;
};

std::uint64_t pair_key(char32_t first, char32_t second) {
    return static_cast<std::uint64_t>(first) << 32 | second;
}

/// The tables of unicode_tables.hpp, made ready for look-up.
struct NfcData {
    std::unordered_map<char32_t, std::uint8_t> combining;
    std::unordered_map<char32_t, const Decomposition*> decompose;
    std::unordered_map<std::uint64_t, char32_t> compose;
    std::unordered_map<char32_t, std::u32string_view> compatible;
    NfcData() {
        for (const Compatibility& entry : compatibilities())
            compatible.emplace(entry.composed, entry.text);
        for (const CombiningRange& range : combining_ranges()) {
            for (char32_t c = range.first; c <= range.last; ++c) {
                combining.emplace(c, range.combining_class);
            }
        }
        for (const Decomposition& entry : decompositions()) {
            decompose.emplace(entry.composed, &entry);
            if (entry.composes) {
                compose.emplace(pair_key(entry.first, entry.second), entry.composed);
            }
        }
    }
    [[nodiscard]] std::uint8_t combining_class(char32_t code) const {
        const auto found = combining.find(code);
        return found == combining.end() ? std::uint8_t{0} : found->second;
    }
};

const NfcData& nfc_data() {
    static const NfcData data;
    return data;
}

void decompose(char32_t code, std::vector<Char>& out) {
    const NfcData& data = nfc_data();
    if (code >= kHangulBase && code < kHangulBase + kSyllables) {
        const char32_t index = code - kHangulBase;
        out.push_back({kLeadBase + index / (kVowels * kTrails), 0});
        out.push_back({kVowelBase + index / kTrails % kVowels, 0});
        if (index % kTrails != 0) out.push_back({kTrailBase + index % kTrails, 0});
        return;
    }
    // Only the first half of a pair can be taken apart further, so the seconds come out backwards.
    std::vector<char32_t> seconds;
    for (auto found = data.decompose.find(code); found != data.decompose.end();
         found = data.decompose.find(code)) {
        if (found->second->second != 0) seconds.push_back(found->second->second);
        code = found->second->first;
    }
    out.push_back({code, data.combining_class(code)});
    for (auto it = seconds.rbegin(); it != seconds.rend(); ++it) {
        out.push_back({*it, data.combining_class(*it)});
    }
}

/// The same, and what stands for others becomes these.
void decompose_compatibly(char32_t code, std::vector<Char>& out) {
    const NfcData& data = nfc_data();
    const auto found = data.compatible.find(code);
    if (found == data.compatible.end()) return decompose(code, out);
    for (const char32_t part : found->second) out.push_back({part, data.combining_class(part)});
}

/// Each run of marks by class, marks of one class in the order in which they stood.
void order_marks(std::vector<Char>& chars) {
    const auto is_mark = [](const Char& c) { return c.combining_class != 0; };
    for (auto begin = chars.begin(); begin != chars.end();) {
        begin = std::find_if(begin, chars.end(), is_mark);
        const auto end = std::find_if_not(begin, chars.end(), is_mark);
        std::stable_sort(begin, end, [](const Char& a, const Char& b) {
            return a.combining_class < b.combining_class;
        });
        begin = end;
    }
}

/// What `first` and `second` join to, or 0.
char32_t composed(char32_t first, char32_t second) {
    if (first >= kLeadBase && first < kLeadBase + kLeads && second >= kVowelBase &&
        second < kVowelBase + kVowels) {
        return kHangulBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTrails;
    }
    const char32_t syllable = first - kHangulBase;
    if (first >= kHangulBase && syllable < kSyllables && syllable % kTrails == 0 &&
        second > kTrailBase && second < kTrailBase + kTrails) {
        return first + (second - kTrailBase);
    }
    const NfcData& data = nfc_data();
    const auto found = data.compose.find(pair_key(first, second));
    return found == data.compose.end() ? 0 : found->second;
}

/// Joins each starter with what follows it, unless something of the same class stands between.
void compose(std::vector<Char>& chars) {
    std::size_t kept = 0;
    std::size_t starter = chars.size();  // none yet
    for (std::size_t i = 0; i < chars.size(); ++i) {
        const Char current = chars[i];
        if (starter < kept) {
            const bool adjacent = kept == starter + 1;
            const bool blocked =
                !adjacent && chars[kept - 1].combining_class >= current.combining_class;
            const char32_t joined = blocked ? 0 : composed(chars[starter].code, current.code);
            if (joined != 0) {
                chars[starter].code = joined;
                continue;
            }
        }
        if (current.combining_class == 0) starter = kept;
        chars[kept++] = current;
    }
    chars.resize(kept);
}

template <class Decompose>
std::string normal_form(std::string_view text, Decompose decompose_one) {
    std::vector<Char> chars;
    chars.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const utf8::Step step = utf8::first(text.substr(at));
        decompose_one(step.code, chars);
        at += step.bytes;
    }
    order_marks(chars);
    compose(chars);
    std::string out;
    out.reserve(text.size());
    for (const Char& c : chars) utf8::append(out, c.code);
    return out;
}

}  // namespace

bool surely_nfc(std::string_view text) {
    // U+0300, the first character that NFC may touch, begins with the byte 0xCC; the Latin
    // letters below it are composed already and meet no mark.
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

bool surely_nfkc(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string nfc(std::string_view text) {
    return normal_form(text, decompose);
}

std::string nfkc(std::string_view text) {
    return normal_form(text, decompose_compatibly);
}

}  // namespace paceline::unicode
