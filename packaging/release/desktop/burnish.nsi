; Installs the studio for one person, without an administrator. Made by windows_package.py, which defines WINDOW (the
; frozen folder), ICON, TARGET, VERSION, SIZE_KIB and, to sign what is written, SIGN (a command with %1).
Unicode true
ManifestDPIAware true
SetCompressor /SOLID lzma
RequestExecutionLevel user
Name "Burnish"
OutFile "${TARGET}"
InstallDir "$LOCALAPPDATA\Programs\Burnish"
InstallDirRegKey HKCU "Software\Burnish" "Folder"
Icon "${ICON}"
UninstallIcon "${ICON}"
BrandingText "Burnish ${VERSION}"
VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "Burnish"
VIAddVersionKey "FileDescription" "Burnish studio"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "LegalCopyright" "The Burnish authors"
!ifdef SIGN
  !finalize '${SIGN}'
  !uninstfinalize '${SIGN}'
!endif
!include "FileFunc.nsh"
!include "LogicLib.nsh"

!define PROGRAM "burnish-studio.exe"
!define APP_ID "Burnish.Studio"
!define UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\Burnish"

Page directory
Page instfiles
UninstPage uninstConfirm
UninstPage instfiles

; The taskbar finds the window's entry by this name, which the window calls itself by.
!macro SetAppId SHORTCUT
  System::Call 'shell32::SHGetPropertyStoreFromParsingName(w "${SHORTCUT}", p 0, i 2, g "{886D8EEB-8CF2-4446-8D02-CDBA1DBDCF99}", *p .r0) i .r1'
  ${If} $1 = 0
    System::Call '*(g "{9F4C2855-9F79-4B39-A8D0-E1D42DE1D5F3}", i 5) p .r2'
    System::Call 'ole32::CoTaskMemAlloc(p 64) p .r4'
    System::Call 'kernel32::lstrcpyW(p r4, w "${APP_ID}")'
    System::Call '*(i 31, i 0, p r4, p 0) p .r3'
    System::Call '$0->6(p r2, p r3) i .r1'
    System::Call '$0->7() i .r1'
    System::Call '$0->2()'
    System::Call 'ole32::PropVariantClear(p r3)'
    System::Free $3
    System::Free $2
  ${EndIf}
!macroend

; A running window keeps its files open: it is asked to be closed before any of them is touched.
!macro RefuseWhileRunning
  ${If} ${FileExists} "$INSTDIR\${PROGRAM}"
    ClearErrors
    FileOpen $0 "$INSTDIR\${PROGRAM}" a
    ${If} ${Errors}
      MessageBox MB_ICONEXCLAMATION "Burnish is running. Close it and start again." /SD IDOK
      Abort
    ${EndIf}
    FileClose $0
  ${EndIf}
!macroend

Section
  !insertmacro RefuseWhileRunning
  RMDir /r "$INSTDIR\_internal"
  SetOutPath "$INSTDIR"
  File /r "${WINDOW}/*"
  WriteUninstaller "$INSTDIR\remove.exe"
  CreateShortcut "$SMPROGRAMS\Burnish.lnk" "$INSTDIR\${PROGRAM}" "" "$INSTDIR\${PROGRAM}" 0 SW_SHOWNORMAL "" "Fine-tune a language model on your own machine"
  !insertmacro SetAppId "$SMPROGRAMS\Burnish.lnk"

  WriteRegStr HKCU "Software\Burnish" "Folder" "$INSTDIR"
  WriteRegStr HKCU "Software\Classes\Burnish.Recipe" "" "Burnish recipe"
  WriteRegStr HKCU "Software\Classes\Burnish.Recipe\DefaultIcon" "" "$INSTDIR\${PROGRAM},0"
  WriteRegStr HKCU "Software\Classes\Burnish.Recipe\shell\open\command" "" '"$INSTDIR\${PROGRAM}" "%1"'
  WriteRegStr HKCU "Software\Classes\.toml\OpenWithProgids" "Burnish.Recipe" ""
  WriteRegStr HKCU "Software\Classes\Burnish.Run" "" "Burnish training run"
  WriteRegStr HKCU "Software\Classes\Burnish.Run\DefaultIcon" "" "$INSTDIR\${PROGRAM},0"
  WriteRegStr HKCU "Software\Classes\Burnish.Run\shell\open\command" "" '"$INSTDIR\${PROGRAM}" "%1"'
  WriteRegStr HKCU "Software\Classes\.jsonl\OpenWithProgids" "Burnish.Run" ""
  System::Call 'shell32::SHChangeNotify(i 0x08000000, i 0, p 0, p 0)'

  WriteRegStr HKCU "${UNINSTALL}" "DisplayName" "Burnish"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayIcon" "$INSTDIR\${PROGRAM}"
  WriteRegStr HKCU "${UNINSTALL}" "Publisher" "The Burnish authors"
  WriteRegStr HKCU "${UNINSTALL}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL}" "UninstallString" '"$INSTDIR\remove.exe"'
  WriteRegStr HKCU "${UNINSTALL}" "QuietUninstallString" '"$INSTDIR\remove.exe" /S'
  WriteRegDWORD HKCU "${UNINSTALL}" "EstimatedSize" ${SIZE_KIB}
  WriteRegDWORD HKCU "${UNINSTALL}" "NoModify" 1
  WriteRegDWORD HKCU "${UNINSTALL}" "NoRepair" 1
SectionEnd

; Runs, models and the engine lie in the person's data folder and stay.
Section "Uninstall"
  !insertmacro RefuseWhileRunning
  Delete "$SMPROGRAMS\Burnish.lnk"
  RMDir /r "$INSTDIR\_internal"
  Delete "$INSTDIR\${PROGRAM}"
  Delete "$INSTDIR\remove.exe"
  RMDir "$INSTDIR"
  DeleteRegValue HKCU "Software\Classes\.toml\OpenWithProgids" "Burnish.Recipe"
  DeleteRegValue HKCU "Software\Classes\.jsonl\OpenWithProgids" "Burnish.Run"
  DeleteRegKey HKCU "Software\Classes\Burnish.Recipe"
  DeleteRegKey HKCU "Software\Classes\Burnish.Run"
  DeleteRegKey HKCU "${UNINSTALL}"
  DeleteRegKey HKCU "Software\Burnish"
  System::Call 'shell32::SHChangeNotify(i 0x08000000, i 0, p 0, p 0)'
SectionEnd
