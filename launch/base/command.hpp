// CommandLine, Command and Option: how the program and its commands declare what they are given.
//
// CommandLine owns everything that is declared; Command and Option are handles, cheap to copy and
// valid as long as it lives. CLI11 stays inside command.cpp: each source that includes it compiles
// all of its parser, which takes ten seconds. The names of an option are CLI11's: "-t,--threads",
// or "text" for a word without a dash.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace paceline {

/// 'word', for messages.
[[nodiscard]] std::string in_quotes(const std::string& word);

/// What a value has to be.
struct OptionCheck {
    std::function<std::string(const std::string& value)> complaint;  // empty: the value is right
    std::string allowed = {};                                        // shown by --help
    /// Absent, or the spelling that the variable gets, before the complaint is asked.
    std::function<std::string(const std::string& value)> spelling = {};
};

class Option {
public:
    explicit Option(CLI::Option& option) : option_{&option} {}

    Option& check(const OptionCheck& check);
    /// --help shows the value that the variable has now.
    Option& show_default();
    /// May be given several times, with one value each.
    Option& repeated();
    Option& required();
    Option& type_name(const std::string& name);
    /// The heading in --help; "" hides the option.
    Option& group(const std::string& heading);
    /// Another option of the same command, declared before.
    Option& excludes(const std::string& other);
    Option& needs(const std::string& other);
    /// Becomes true if the command line has the option, also with the value of its default.
    Option& tells(bool& given);

    /// Whether the command line has it, or give() was called. Of a command that was parsed.
    [[nodiscard]] bool given() const;
    /// As if the command line had it with these values, true or false for a flag. The complaint
    /// about them; empty: there is none.
    [[nodiscard]] std::string give(const std::vector<std::string>& values);

private:
    CLI::Option* option_;
};

class Command {
public:
    explicit Command(CLI::App& app) : app_{&app} {}

    Command add_command(const std::string& name, const std::string& text);
    /// Value: std::string, std::vector of it, int, std::uint64_t, float, double, or std::optional
    /// of std::string or double.
    template <class Value>
    Option add_option(const std::string& names, Value& value, const std::string& text);
    /// One that `check` limits and whose default --help shows.
    template <class Value>
    Option add_option(const std::string& names,
                      Value& value,
                      const std::string& text,
                      const OptionCheck& check) {
        return add_option(names, value, text).check(check).show_default();
    }
    Option add_flag(const std::string& names, bool& value, const std::string& text);
    /// A flag that may have a value; without one `value` is the empty text.
    Option add_flag_with_value(const std::string& names,
                               std::optional<std::string>& value,
                               const std::string& text);
    /// An option that other commands have and this one does not take. `complaint` gives the message
    /// for a value, or nothing if the value changes nothing.
    Option refuse_option(const std::string& name,
                         std::function<std::string(const std::string& value)> complaint);
    /// An option that was declared, by its long name with dashes.
    [[nodiscard]] Option option(const std::string& name);
    /// The last lines of --help.
    void footer(const std::string& text);
    /// Whether the command line chose this command.
    [[nodiscard]] bool parsed() const;

private:
    CLI::App* app_;
};

class CommandLine {
public:
    CommandLine(const std::string& text, const std::string& name);
    ~CommandLine();
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;

    /// What the commands are added to.
    [[nodiscard]] Command root();
    /// --version: prints what `version` returns.
    void add_version(std::string (*version)(), const std::string& text);
    /// Fills the variables of the options. Nothing if a command is to run, else the program's exit
    /// code: --help or --version was printed, or what is wrong with the command line.
    [[nodiscard]] std::optional<int> parse(int argc, char** argv);

private:
    std::unique_ptr<CLI::App> app_;
};

}  // namespace paceline
