#include "launch/config/method_list.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "launch/base/nearest_word.hpp"

namespace paceline {

namespace {

constexpr auto kMethods = std::to_array<Method>({
#include "launch/configs.inc"
});

struct Family {
    std::string_view name;
    std::string_view sentence;
};
/// In the order of the list; methods name theirs in their file.
constexpr std::array kFamilies{
    Family{"plain", "One token per pass of the target, without candidates: the baseline."},
    Family{"lookup", "Tokens that followed the last ones earlier in the text are proposed."},
    Family{"guesses",
           "Without a model or training: guesses that the target's own tokens correct, or what "
           "followed in a store of other texts."},
    Family{"speculative", "A draft model proposes, then the target verifies; they take turns."},
    Family{"PEARL", "The draft continues below its own candidates while the target verifies them."},
    Family{"FOLD",
           "An exit inside the target predicts its token early; the draft prepares continuations "
           "of it."},
    Family{"AdaDecode",
           "Exits of the target propose; the layers after them run later or in another process."},
    Family{"LayerSkip/AdaSPEED",
           "The target's first layers draft, all of them verify; one device."},
    Family{"SWIFT/CLaSp/Draft & Verify",
           "The target drafts without some layers, verifies with all; one device."},
    Family{"heads", "Heads after the last layer predict the tokens several positions ahead."},
};

constexpr bool families_are_known() {
    return std::all_of(kMethods.begin(), kMethods.end(), [](const Method& method) {
        return std::any_of(kFamilies.begin(), kFamilies.end(),
                           [&](const Family& family) { return family.name == method.family; });
    });
}
static_assert(families_are_known(),
              "a file of configs/ has a line '# Family: ...' that is not here");

constexpr std::string_view kPlainSummary =
    "One token after the other, in this process, without stages: the default. The fastest where "
    "nothing "
    "predicts the text and no second device helps.";

constexpr std::size_t kColumns = 100;

/// `text` broken into lines of at most kColumns, each with `indent` spaces before it; the first one
/// begins behind `head`.
std::string wrapped(std::string head, std::string_view text, std::size_t indent) {
    if (head.size() < indent) head.resize(indent, ' ');
    std::size_t column = head.size();
    bool line_begins = true;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(word.size() + 1, text.size()));
        if (!line_begins && column + 1 + word.size() > kColumns) {
            head += '\n' + std::string(indent, ' ');
            column = indent;
        } else if (!line_begins) {
            head += ' ';
            ++column;
        }
        head += word;
        column += word.size();
        line_begins = false;
    }
    return head + '\n';
}

/// "pearl, pearl-adaspeed, ..."
std::string names_of(const Family& family) {
    std::vector<std::string_view> names;
    for (const Method& method : kMethods) {
        if (method.family == family.name) names.push_back(method.name);
    }
    std::sort(names.begin(), names.end());
    std::string text{family.name == kPlainMethod ? kPlainMethod : ""};
    for (const std::string_view name : names)
        text += (text.empty() ? "" : ", ") + std::string{name};
    return text;
}

}  // namespace

std::span<const Method> methods() {
    return kMethods;
}

const Method* find_method(std::string_view name) {
    const std::string_view own = name == kPlainMethod ? kPlainPipeline : name;
    const auto* const found = std::find_if(
        kMethods.begin(), kMethods.end(), [&](const Method& method) { return method.name == own; });
    return found == kMethods.end() ? nullptr : found;
}

std::string_view why_not_offered(std::string_view name) {
    constexpr std::string_view kWhy =
        " is not offered: it emits tokens of early layers that the last layer does not confirm, so "
        "the "
        "text changes; 'adadecode' and 'layerskip' exit early with the bytes of plain decoding";
    return name == "free" || name == "lite" ? kWhy : std::string_view{};
}

std::string known_methods_text(std::string_view name) {
    std::vector<std::string_view> known{kPlainMethod};
    for (const Method& method : kMethods) known.push_back(method.name);
    return known_text(name, known);
}

std::string families_table() {
    constexpr std::size_t kIndent = 4;
    std::string text;
    for (const Family& family : kFamilies) {
        text += wrapped(std::string{family.name} + ": ", family.sentence, kIndent);
        text += wrapped("", names_of(family), kIndent);
    }
    return text + "`paceline run --list-methods all` describes each method.\n";
}

std::string methods_table() {
    std::size_t width = 0;
    for (const Method& method : kMethods) width = std::max(width, method.name.size());
    const auto entry = [&](std::string_view name, std::string_view summary) {
        return wrapped(std::string{name}, summary, width + 2);
    };
    std::string text = entry(kPlainMethod, kPlainSummary);
    for (const Method& method : kMethods) text += entry(method.name, method.summary);
    return text;
}

}  // namespace paceline
