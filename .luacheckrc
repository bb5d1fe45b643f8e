std = "luajit"
max_line_length = 80
files["tests/lua"].std = "luajit+busted"
exclude_files = { "build*" }
