#pragma once
// The members of a ZIP archive that are stored without compression, as PyTorch writes them. Internal.
// PKWARE's APPNOTE 6.3.10: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace polyphase::io {

/// Where a member's bytes are in the archive.
struct ZipMember {
  std::size_t begin = 0;
  std::size_t size = 0;
};

/// All members by name. `operation` and `path` open the error texts. Throws FormatError where the archive is cut off or
/// contradicts itself, and where a member is compressed, encrypted, or reaches past the archive.
[[nodiscard]] std::map<std::string, ZipMember> zip_members(const std::string& operation, const std::string& path,
                                                           std::string_view archive);

}  // namespace polyphase::io
