# cmake -DFROM=FILE -DTO=FOLDER -P copy_if_there.cmake: copies a file that may be absent; does nothing when it is current.
if(EXISTS "${FROM}")
  file(COPY "${FROM}" DESTINATION "${TO}")
endif()
