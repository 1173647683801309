#include "launch/api/tools/chat_forms.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "launch/tool_calls/thought_split.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline::serve {

ChatForms chat_forms(const ModelFile& file, const Tokenizer& tokenizer) {
    std::string text = file.tokenizer().chat_template;
    for (const auto& [name, more] : file.contents().parts.chat.more) {
        if (name == "tool_use") text += more;
    }
    ChatForms forms{.tools = tool_format_of(text),
                    .shows_tools = shows_tools(text),
                    .thoughts = has_thoughts(text)};
    const auto opens = syntax_of(forms.tools).opens;
    for (const std::string_view word : shown_controls()) {
        const std::optional<TokenId> token = tokenizer.find(word);
        if (!token || !tokenizer.is_control(*token)) continue;
        forms.shown_controls.push_back(*token);
        const bool thought = word == kThoughtOpens || word == kThoughtCloses;
        if (thought || std::find(opens.begin(), opens.end(), word) != opens.end())
            forms.opens_by_control = true;
    }
    return forms;
}

}  // namespace paceline::serve
