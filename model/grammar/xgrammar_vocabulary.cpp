#include "model/grammar/xgrammar_vocabulary.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

// The library is built to call these (cmake/PacelineGrammar.cmake). A warning is about a token or a
// budget that it does not take, which its callers see by themselves; an error's text goes to the
// client.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& /*file*/,
                               int /*line*/,
                               const std::string& message) {
    throw std::runtime_error{message};
}

void LogMessageImpl(const std::string& /*file*/,
                    int /*line*/,
                    int /*level*/,
                    const std::string& /*message*/) {}

}  // namespace xgrammar

namespace paceline {

XgrammarVocabulary::XgrammarVocabulary(GrammarVocabulary vocabulary)
    : vocabulary_{std::move(vocabulary)} {
    for (std::size_t i = 0; i < vocabulary_.texts.size(); ++i) {
        const std::string& text = vocabulary_.texts[i];
        if (vocabulary_.control[i] || text.empty()) continue;
        tokens_.emplace(text, static_cast<TokenId>(i));
        longest_ = std::max(longest_, text.size());
    }
}

std::vector<TokenId> XgrammarVocabulary::spelled(std::string_view bytes, std::size_t most) const {
    std::vector<TokenId> found;
    while (!bytes.empty() && found.size() < most) {
        std::size_t length = std::min(longest_, bytes.size());
        auto token = tokens_.find(bytes.substr(0, length));
        while (token == tokens_.end() && length > 1)
            token = tokens_.find(bytes.substr(0, --length));
        if (token == tokens_.end()) break;
        found.push_back(token->second);
        bytes.remove_prefix(length);
    }
    return found;
}

std::vector<TokenId> XgrammarVocabulary::named_by(const GrammarSpec& spec) const {
    std::vector<TokenId> named;
    if (spec.kind != GrammarKind::StructuralTag && spec.kind != GrammarKind::Ebnf) return named;
    for (std::size_t i = 0; i < vocabulary_.texts.size(); ++i) {
        const std::string& text = vocabulary_.texts[i];
        if (vocabulary_.control[i] && text.size() > 1 && spec.text.find(text) != spec.text.npos)
            named.push_back(static_cast<TokenId>(i));
    }
    return named;
}

bool XgrammarVocabulary::may_name(const std::vector<TokenId>& named) const {
    return std::is_sorted(named.begin(), named.end()) &&
           std::all_of(named.begin(), named.end(), [this](TokenId token) {
               const auto at = static_cast<std::size_t>(token);
               return token >= 0 && at < vocabulary_.texts.size() && vocabulary_.control[at];
           });
}

xgrammar::TokenizerInfo XgrammarVocabulary::info(const std::vector<TokenId>& named) {
    for (const auto& [tokens, made] : made_) {
        if (tokens == named) return made;
    }
    std::vector<std::string> texts = vocabulary_.texts;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const bool hidden =
            vocabulary_.control[i] &&
            !std::binary_search(named.begin(), named.end(), static_cast<TokenId>(i));
        if (hidden) texts[i].clear();  // what xgrammar calls special: never allowed
    }
    // End tokens are those of each answer, so the vocabulary has none.
    xgrammar::TokenizerInfo made{texts, xgrammar::VocabType::RAW,
                                 static_cast<int>(vocabulary_.vocab_size),
                                 std::vector<std::int32_t>{}};
    made_.emplace_front(named, made);
    if (made_.size() > kKept) made_.pop_back();
    return made;
}

}  // namespace paceline
