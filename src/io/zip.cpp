#include "io/zip.hpp"

#include <algorithm>
#include <cstdint>

#include "io/byte_reader.hpp"
#include "io/safetensors_header.hpp"

namespace polyphase::io {
namespace {

constexpr std::uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kEntry = 0x02014b50,
                        kLocal = 0x04034b50;
constexpr std::size_t kEndBytes = 22, kLocator64Bytes = 20;
constexpr std::uint64_t kElsewhere = 0xFFFFFFFF;  // the number is in the ZIP64 record

/// The central directory.
struct Directory {
  std::uint64_t entries = 0;
  std::uint64_t begin = 0;
};

class Archive {
 public:
  Archive(const std::string& operation, const std::string& path, std::string_view bytes)
      : operation_(operation), path_(path), bytes_(bytes) {}

  [[nodiscard]] std::map<std::string, ZipMember> members() const {
    const Directory directory = find_directory();
    std::map<std::string, ZipMember> members;
    ByteReader reader = at(directory.begin);
    for (std::uint64_t i = 0; i < directory.entries; ++i) read_entry(reader, members);
    return members;
  }

 private:
  [[nodiscard]] ByteReader at(std::uint64_t offset) const {
    ByteReader reader(operation_, path_, bytes_);
    static_cast<void>(reader.take(offset));
    return reader;
  }

  [[nodiscard]] Directory find_directory() const {
    // A comment of at most 65535 bytes may follow the record.
    const std::size_t earliest = bytes_.size() - std::min<std::size_t>(bytes_.size(), kEndBytes + 65535);
    const std::size_t end = bytes_.rfind("PK\x05\x06");
    ByteReader whole = at(0);
    whole.expect(end != bytes_.npos && end >= earliest, "the end of a ZIP archive is missing: the file is cut off");
    ByteReader record = at(end);
    record.expect(record.number<std::uint32_t>() == kEnd, "the end of a ZIP archive is missing");
    static_cast<void>(record.take(4));  // numbers of disks
    static_cast<void>(record.number<std::uint16_t>());
    Directory directory{record.number<std::uint16_t>(), 0};
    static_cast<void>(record.number<std::uint32_t>());
    directory.begin = record.number<std::uint32_t>();
    static_cast<void>(record.take(record.number<std::uint16_t>()));  // the comment is all there
    if (end < kLocator64Bytes) return directory;
    ByteReader locator = at(end - kLocator64Bytes);
    if (locator.number<std::uint32_t>() != kLocator64) return directory;
    static_cast<void>(locator.number<std::uint32_t>());
    ByteReader large = at(locator.number<std::uint64_t>());
    large.expect(large.number<std::uint32_t>() == kEnd64, "the ZIP64 record is missing");
    static_cast<void>(large.take(28));  // size, versions, disks, entries of this disk
    directory.entries = large.number<std::uint64_t>();
    static_cast<void>(large.number<std::uint64_t>());
    directory.begin = large.number<std::uint64_t>();
    return directory;
  }

  void read_entry(ByteReader& reader, std::map<std::string, ZipMember>& members) const {
    reader.expect(reader.number<std::uint32_t>() == kEntry, "an entry of the ZIP directory is missing");
    static_cast<void>(reader.take(4));  // versions
    const auto flags = reader.number<std::uint16_t>(), method = reader.number<std::uint16_t>();
    static_cast<void>(reader.take(8));  // time, date, checksum
    std::uint64_t packed = reader.number<std::uint32_t>(), size = reader.number<std::uint32_t>();
    const auto name_bytes = reader.number<std::uint16_t>(), extra_bytes = reader.number<std::uint16_t>(),
               comment_bytes = reader.number<std::uint16_t>();
    static_cast<void>(reader.take(8));  // disk, attributes
    std::uint64_t local = reader.number<std::uint32_t>();
    const std::string name(reader.take(name_bytes));
    read_extra(reader.part(extra_bytes), size, packed, local);
    static_cast<void>(reader.take(comment_bytes));
    reader.expect(method == 0 && (flags & 1U) == 0 && packed == size, "the member ", in_quotes(name),
                  " is compressed or encrypted, which PyTorch's files are not");
    ByteReader header = at(local);
    header.expect(header.number<std::uint32_t>() == kLocal, "the header of the member ", in_quotes(name), " is missing");
    static_cast<void>(header.take(22));
    const auto local_name = header.number<std::uint16_t>(), local_extra = header.number<std::uint16_t>();
    static_cast<void>(header.take(std::uint64_t{local_name} + local_extra));
    const std::size_t begin = header.offset();
    static_cast<void>(header.take(size));
    reader.expect(members.emplace(name, ZipMember{begin, static_cast<std::size_t>(size)}).second, "the member ",
                  in_quotes(name), " is there twice");
  }

  /// Numbers that do not fit 32 bits stand in the extra field 1, in this order.
  static void read_extra(ByteReader extra, std::uint64_t& size, std::uint64_t& packed, std::uint64_t& local) {
    while (extra.left() >= 4) {
      const auto kind = extra.number<std::uint16_t>(), bytes = extra.number<std::uint16_t>();
      ByteReader field = extra.part(bytes);
      if (kind != 1) continue;
      for (std::uint64_t* number : {&size, &packed, &local})
        if (*number == kElsewhere) *number = field.number<std::uint64_t>();
    }
  }

  const std::string& operation_;
  const std::string& path_;
  std::string_view bytes_;
};

}  // namespace

std::map<std::string, ZipMember> zip_members(const std::string& operation, const std::string& path, std::string_view archive) {
  return Archive(operation, path, archive).members();
}

}  // namespace polyphase::io
