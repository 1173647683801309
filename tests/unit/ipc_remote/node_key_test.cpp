#include "ipc/remote/node_key.hpp"

#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ipc/remote/node_place.hpp"

using namespace paceline;
using namespace paceline::remote;
namespace fs = std::filesystem;

namespace {

constexpr const char* kText = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

/// A folder of its own for each test.
struct KeyFolder {
    KeyFolder() {
        std::string name = (fs::temp_directory_path() / "paceline-key-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    KeyFolder(const KeyFolder&) = delete;
    KeyFolder& operator=(const KeyFolder&) = delete;
    ~KeyFolder() { fs::remove_all(path); }
    std::string file(const std::string& content, mode_t mode) const {
        const std::string name = path / "key";
        std::ofstream{name} << content;
        REQUIRE(::chmod(name.c_str(), mode) == 0);
        return name;
    }
    fs::path path;
};

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a key is 64 hexadecimal digits, and its text gives the same key") {
    const Result<NodeKey> key = NodeKey::from_text(kText, "PACELINE_KEY");
    REQUIRE(key.ok());
    CHECK(std::to_integer<int>(key.value().bytes()[1]) == 0x11);
    CHECK(std::to_integer<int>(key.value().bytes()[31]) == 0xff);
    const Result<NodeKey> again = NodeKey::from_text(key.value().text(), "its text");
    REQUIRE(again.ok());
    CHECK(std::ranges::equal(again.value().bytes(), key.value().bytes()));
}

TEST_CASE("what is no key is refused with its source, and is not repeated") {
    for (const std::string& text : {std::string{}, std::string(63, 'a'), std::string(65, 'a'),
                                    std::string(63, 'a') + "g", std::string(64, ' ')}) {
        const Result<NodeKey> key = NodeKey::from_text(text, "PACELINE_KEY");
        REQUIRE_FALSE(key.ok());
        CHECK(has(key.error().what, "PACELINE_KEY holds no key"));
        CHECK(has(key.error().what, "--new-key"));
        CHECK((text.empty() || !has(key.error().what, text)));
    }
}

TEST_CASE("a new key is written to a new file of mode 0600 and read from it") {
    const KeyFolder folder;
    const std::string name = folder.path / "new";
    const mode_t before = ::umask(0377);
    const Status written = write_new_key(name);
    ::umask(before);
    REQUIRE(written.ok());
    CHECK((fs::status(name).permissions() & fs::perms::mask) == fs::perms{0600});
    const Result<NodeKey> first = NodeKey::from_file(name);
    REQUIRE(first.ok());
    CHECK(fs::file_size(name) == 65);
    const Status again = write_new_key(name);
    REQUIRE_FALSE(again.ok());
    CHECK(has(again.error().what, name + " exists already"));
    const Result<NodeKey> second = NodeKey::from_file(name);
    REQUIRE(second.ok());
    CHECK(first.value().text() == second.value().text());
    CHECK(NodeKey::random().value().text() != first.value().text());
}

TEST_CASE("a key file that others may touch is refused with its name and mode") {
    const KeyFolder folder;
    for (const mode_t mode : {0640, 0604, 0620, 0666, 0700, 0610}) {
        const std::string name = folder.file(kText, mode);
        const Result<NodeKey> key = NodeKey::from_file(name);
        REQUIRE_FALSE(key.ok());
        char digits[8];
        std::snprintf(digits, sizeof digits, "%04o", static_cast<unsigned>(mode));
        CHECK(has(key.error().what, name + " has mode " + digits));
    }
    CHECK(NodeKey::from_file(folder.file(kText, 0400)).ok());
    CHECK(NodeKey::from_file(folder.file(std::string{kText} + "\n", 0600)).ok());
}

TEST_CASE("a key file that is missing, short, long or no file is refused with its name") {
    const KeyFolder folder;
    CHECK(has(NodeKey::from_file(folder.path / "none").error().what,
              (folder.path / "none").string()));
    CHECK(has(NodeKey::from_file(folder.path).error().what, "is not a regular file"));
    const std::string pipe = folder.path / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(has(NodeKey::from_file(pipe).error().what, "is not a regular file"));
    for (const std::string& text :
         {std::string{"00"}, std::string(70, '0'), std::string{kText} + "\n\n"}) {
        const Result<NodeKey> key = NodeKey::from_file(folder.file(text, 0600));
        REQUIRE_FALSE(key.ok());
        CHECK(has(key.error().what, "holds no key"));
        CHECK(key.error().code == Errc::BadFile);
    }
}

TEST_CASE("a place is a host and a port, an IPv6 address in brackets") {
    CHECK(NodePlace::parse("10.0.0.1:47600").value().host == "10.0.0.1");
    CHECK(NodePlace::parse("eth1:1").value().port == 1);
    CHECK(NodePlace::parse("[fd00::1]:47600").value().host == "fd00::1");
    CHECK(NodePlace::parse("[fd00::1]:47600").value().text() == "[fd00::1]:47600");
    for (const char* text : {"", "a", ":1", "a:", "a:65536", "a:-1", "a:1x", "fd00::1:47600",
                             "[fd00::1", "[fd00::1]47600", "[]:1", "a: 1"}) {
        CAPTURE(text);
        const Result<NodePlace> place = NodePlace::parse(text);
        REQUIRE_FALSE(place.ok());
        CHECK(has(place.error().what, "is no HOST:PORT"));
    }
}

TEST_CASE("an interface means its address, and a wildcard is refused") {
    CHECK(find_own_address("lo").value() == "127.0.0.1");
    CHECK(interface_of("127.0.0.1") == "lo");
    CHECK(interface_of("192.0.2.1").empty());
    CHECK(has(find_own_address("0.0.0.0").error().what, "means all interfaces"));
    CHECK(has(find_own_address("::").error().what, "means all interfaces"));
    CHECK(has(find_own_address("no such place").error().what, "'no such place' is neither"));
}

TEST_CASE("a name that means only a loopback address is refused, localhost and numbers are not") {
    CHECK(find_own_address("localhost").ok());
    CHECK(find_own_address("127.0.0.1").value() == "127.0.0.1");
    CHECK(find_own_address("::1").value() == "::1");
    // Written in no usual form, it is looked up as a name is.
    const Result<std::string> name = find_own_address("127.1");
    REQUIRE_FALSE(name.ok());
    CHECK(has(name.error().what, "'127.1' means 127.0.0.1 on this machine"));
    CHECK(has(name.error().what, "give an address or an interface of it instead: "));
}
