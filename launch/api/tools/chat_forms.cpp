#include "launch/api/tools/chat_forms.hpp"

#include <optional>
#include <string>
#include <string_view>

#include "launch/tool_calls/thought_split.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline::serve {
namespace {

constexpr std::string_view kThoughtTags[] = {kThoughtOpens, kThoughtCloses, "[THINK]", "[/THINK]"};

}  // namespace

ChatForms chat_forms(const ModelFile& file, const Tokenizer& tokenizer) {
    std::string text = file.tokenizer().chat_template;
    for (const auto& [name, more] : file.contents().parts.chat.more) {
        if (name == "tool_use") text += more;
    }
    ChatForms forms{.tools = tool_format_of(text),
                    .shows_tools = shows_tools(text),
                    .thoughts = has_thoughts(text)};
    for (const std::string_view word : kThoughtTags) {
        const std::optional<TokenId> token = tokenizer.find(word);
        forms.text_by_control = forms.text_by_control || (token && tokenizer.is_control(*token));
    }
    for (const std::string_view word : shown_controls()) {
        const std::optional<TokenId> token = tokenizer.find(word);
        if (token && tokenizer.is_control(*token)) forms.shown_controls.push_back(*token);
    }
    return forms;
}

}  // namespace paceline::serve
