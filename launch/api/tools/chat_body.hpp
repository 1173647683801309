// ChatBody: the messages of a chat, made from the items of another API.
//
// What belongs to one turn of the assistant (thought, text, calls) is one message; texts of a user
// behind each other are one, as templates want it. Only the first message may be the system's: a
// later one is the user's. One thread.
#pragma once

#include <string>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace paceline::serve {

class ChatBody {
public:
    using Json = nlohmann::ordered_json;

    void add_system(const std::string& text);
    void add_user(const std::string& text);
    void add_thought(const std::string& text);
    void add_text(const std::string& text);  // of the assistant
    /// `arguments`: a JSON object, or one as a text.
    void add_call(const std::string& id, const std::string& name, Json arguments);
    void add_result(const std::string& call, const std::string& text);

    /// At least one message.
    [[nodiscard]] Json messages() const;

private:
    [[nodiscard]] Json& assistant();

    Json messages_ = Json::array();
    std::unordered_map<std::string, std::string> called_;  // names of functions, by ids of calls
};

}  // namespace paceline::serve
